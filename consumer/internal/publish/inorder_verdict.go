package publish

import (
	"errors"

	"github.com/IBM/sarama"
)

// batchVerdict is the meaning of a broker's answer for a record batch.
type batchVerdict uint8

const (
	batchAppended  batchVerdict = iota // in the log, and acknowledged by all in-sync replicas
	batchUnknown                       // in the log or not: it may be sent again as it is
	batchTooLarge                      // not in the log because of its size
	batchRefused                       // not in the log
	batchUnordered                     // not in the log: the broker expects another sequence number
)

// verdictOf returns the verdict of a broker's answer. Errors without a code of Kafka come from the
// connection.
func verdictOf(err error) batchVerdict {
	var code sarama.KError
	var invalid sarama.PacketEncodingError
	switch {
	case err == nil:
		return batchAppended
	case errors.As(err, &invalid):
		return batchRefused // the request was not sent
	case !errors.As(err, &code):
		return batchUnknown
	}
	switch { // unknown codes, of newer brokers too, may mean that the batch was appended
	case isAny(code, sarama.ErrNoError, sarama.ErrDuplicateSequenceNumber):
		return batchAppended // by an earlier attempt, and the response was lost (KIP-98)
	case isTooLarge(code):
		return batchTooLarge
	case isAny(code, sarama.ErrOutOfOrderSequenceNumber, sarama.ErrUnknownProducerID,
		sarama.ErrInvalidProducerEpoch, sarama.ErrInvalidProducerIDMapping,
		sarama.ErrProducerFenced):
		return batchUnordered
	case isAny(code, sarama.ErrInvalidMessage, sarama.ErrInvalidTimestamp,
		sarama.ErrInvalidRecord, sarama.ErrPolicyViolation, sarama.ErrInvalidTopic,
		sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
		sarama.ErrUnsupportedForMessageFormat, sarama.ErrUnsupportedVersion,
		sarama.ErrInvalidRequiredAcks):
		return batchRefused
	}
	return batchUnknown
}
