package publish

import (
	"errors"
	"slices"

	"github.com/IBM/sarama"
)

var errClosed = errors.New("producer is closed")

// isRefused reports whether the broker will never take a record as it is.
func isRefused(err error) bool {
	return isAny(err, sarama.ErrInvalidTimestamp, sarama.ErrInvalidRecord,
		sarama.ErrPolicyViolation)
}

func isTooLarge(err error) bool {
	return isAny(err, sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge)
}

// isNoTopic reports whether a topic is missing, has an invalid name, or must not be written to.
func isNoTopic(err error) bool {
	return isAny(err, sarama.ErrUnknownTopicOrPartition, sarama.ErrTopicAuthorizationFailed,
		sarama.ErrInvalidTopic)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
