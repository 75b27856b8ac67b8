package watermillidem

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem"
)

// Handler returns a function for Router.AddConsumerHandler that settles each message with p. While
// another worker has the event, or a store is down, the function waits. It ends with nil when the
// message is settled, and otherwise with an error, such as [idem.ErrStopping] when the context of
// the message ends. Safe for concurrent use. Close p after the router.
func Handler(p *idem.Processor, opts ...Option) message.NoPublishHandlerFunc {
	o, s := build(opts), newSettler(p)
	return func(m *message.Message) error {
		msg, known := o.convert(m)
		ctx := m.Context()
		for {
			err := s.settle(ctx, ctx, msg, known)
			var wait *idem.WaitError
			if !errors.As(err, &wait) {
				return err
			}
			if err := pause(ctx, wait.After); err != nil {
				return err
			}
		}
	}
}

// minPause keeps an answer without a time from making a busy loop.
const minPause = 10 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(max(d, minPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(idem.ErrStopping, context.Cause(ctx))
	}
}
