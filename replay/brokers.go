package replay

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// await repeats try while brokers are away, for [Config].BrokerWait, and until ctx ends.
func (r *Replay) await(ctx context.Context, try func() error) error {
	began, log := time.Now(), r.neutral.Logger
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
		case !away(err), time.Since(began) >= r.cfg.BrokerWait:
			return err
		case back.Tries == 0:
			log.Warn("brokers do not answer, waiting for them", "at_most", r.cfg.BrokerWait,
				"error", r.neutral.Text(err))
		}
		if err := back.Wait(ctx); err != nil {
			return err
		}
	}
}

// away reports whether a wait can help: no broker was reached, or a broker cannot answer now.
func away(err error) bool {
	if permanent(err) {
		return false
	}
	for _, refused := range []error{
		consumer.ErrUnauthorized, kafkaauth.ErrRefused, sarama.ErrClusterAuthorizationFailed,
		sarama.ErrUnsupportedSASLMechanism, sarama.ErrIllegalSASLState,
	} {
		if errors.Is(err, refused) {
			return false
		}
	}
	var network net.Error
	var code sarama.KError
	return errors.Is(err, sarama.ErrOutOfBrokers) || errors.Is(err, io.EOF) ||
		errors.As(err, &network) || errors.As(err, &code)
}

// permanent reports whether no wait can help.
func permanent(err error) bool {
	return errors.Is(err, lane.ErrClosed) ||
		errors.Is(err, sarama.ErrTopicAuthorizationFailed) ||
		errors.Is(err, sarama.ErrSASLAuthenticationFailed) ||
		errors.Is(err, sarama.ErrUnknownTopicOrPartition)
}
