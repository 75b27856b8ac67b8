package consumer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// fatal returns the error to end Run with if no retry can help, else nil.
func fatal(err error) error {
	var gap *GapError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &gap), isLostOffsets(err), errors.Is(err, ErrUnauthorized):
		return err
	case errors.Is(err, sarama.ErrFencedInstancedId):
		return fmt.Errorf("%w: %w", ErrFenced, err)
	case isAny(err, sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed,
		sarama.ErrClusterAuthorizationFailed), isLogin(err):
		return fmt.Errorf("%w: %w", ErrUnauthorized, err)
	case isAny(err, sarama.ErrInvalidGroupId, sarama.ErrInvalidSessionTimeout):
		return err
	}
	return nil
}

// isLogin reports whether the brokers refuse the credentials.
func isLogin(err error) bool {
	return isAny(err, sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism,
		sarama.ErrIllegalSASLState)
}

// isRefused reports whether the client lacks a right on a topic or on the group.
func isRefused(err error) bool {
	return isAny(err, ErrUnauthorized, sarama.ErrTopicAuthorizationFailed,
		sarama.ErrGroupAuthorizationFailed)
}

func isLostOffsets(err error) bool {
	var lost *OffsetsLostError
	return errors.As(err, &lost)
}

// isLost reports whether a session that ended for this cause had lost its partitions before.
// Another member may be handling the events (K-11).
func isLost(cause error) bool {
	return isAny(cause, sarama.ErrUnknownMemberId, sarama.ErrIllegalGeneration,
		sarama.ErrFencedInstancedId, sarama.ErrRebalanceTimedOut)
}

// isFinalCommit reports whether no retry of a commit can succeed: the member has left the group, or
// may not commit.
func isFinalCommit(err error) bool {
	return isAny(err, sarama.ErrUnknownMemberId, sarama.ErrFencedInstancedId,
		sarama.ErrGroupAuthorizationFailed, sarama.ErrTopicAuthorizationFailed)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
