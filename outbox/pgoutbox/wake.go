package pgoutbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// listenCheck is how often a connection without notifications is checked.
const listenCheck = 30 * time.Second

// Wake implements [outbox.Waker]. Wake calls wake once at the start, because rows may have come
// before, and then after each commit of a transaction with [Notify]. Wake returns nil when ctx
// ends, and an error when the connection is lost: call Wake again then.
//
// Wake takes a connection out of the pool and keeps it, in addition to the pool's maximum. Through
// a pooler in transaction mode no notification arrives.
func (o *Outbox) Wake(ctx context.Context, wake func()) error {
	if _, err := o.pooled(ctx); err != nil {
		return o.wakeEnd(ctx, err)
	}
	pooled, err := o.pool.Acquire(ctx)
	if err != nil {
		return o.wakeEnd(ctx, err)
	}
	conn := pooled.Hijack()
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = conn.Close(end) // closed also after an error
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return o.wakeEnd(ctx, err)
	}
	for {
		wake()
		if err := heard(ctx, conn); err != nil {
			return o.wakeEnd(ctx, err)
		}
	}
}

// heard waits for a notification.
func heard(ctx context.Context, conn *pgx.Conn) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, listenCheck)
		_, err := conn.WaitForNotification(bounded)
		quiet := bounded.Err() != nil && ctx.Err() == nil &&
			errors.Is(err, context.DeadlineExceeded)
		cancel()
		if !quiet {
			return err
		}
		bounded, cancel = context.WithTimeout(ctx, endTimeout)
		err = conn.Ping(bounded)
		cancel()
		if err != nil {
			return err
		}
	}
}

func (o *Outbox) wakeEnd(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return o.failed("listen", err)
	}
}
