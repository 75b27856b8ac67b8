package replay

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// await repeats try while brokers are away, until ctx ends. All calls of a run together wait for
// [Config].BrokerWait.
func (j *job) await(ctx context.Context, try func() error) error {
	began, log := time.Now(), j.r.neutral.Logger
	until := began.Add(j.r.cfg.BrokerWait - j.waited)
	defer func() { j.waited += time.Since(began) }()
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var back runner.Backoff
	for {
		err := try()
		switch {
		case err == nil:
			if back.Tries > 0 {
				log.Info("brokers answer again", "after", time.Since(began).Round(time.Millisecond))
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !away(err), time.Now().After(until):
			return err
		case back.Tries == 0:
			log.Warn("brokers do not answer, waiting for them", "until", until,
				"error", j.r.neutral.Text(err))
		}
		switch {
		case back.Wait(waiting) == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			return err
		}
	}
}

// temporary are the answers of brokers that another answer may follow.
var temporary = []error{
	sarama.ErrOutOfBrokers, io.EOF,
	sarama.ErrBrokerNotAvailable, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
	sarama.ErrReplicaNotAvailable, sarama.ErrNotController, sarama.ErrNetworkException,
	sarama.ErrRequestTimedOut, sarama.ErrOffsetsLoadInProgress,
	sarama.ErrConsumerCoordinatorNotAvailable, sarama.ErrNotCoordinatorForConsumer,
	sarama.ErrUnstableOffsetCommit, sarama.ErrKafkaStorageError,
}

// away reports whether a wait can help: no broker was reached, or a broker cannot answer now.
func away(err error) bool {
	if permanent(err) {
		return false
	}
	for _, refused := range []error{
		consumer.ErrUnauthorized, kafkaauth.ErrRefused, sarama.ErrClusterAuthorizationFailed,
	} {
		if errors.Is(err, refused) {
			return false
		}
	}
	var network net.Error
	return errors.As(err, &network) ||
		slices.ContainsFunc(temporary, func(one error) bool { return errors.Is(err, one) })
}

// permanent reports whether no wait can help.
func permanent(err error) bool {
	return errors.Is(err, lane.ErrClosed) ||
		errors.Is(err, sarama.ErrTopicAuthorizationFailed) ||
		errors.Is(err, sarama.ErrSASLAuthenticationFailed) ||
		errors.Is(err, sarama.ErrUnknownTopicOrPartition)
}
