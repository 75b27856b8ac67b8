package pgoutbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// listenCheck is how often a connection without notifications is checked.
const listenCheck = 30 * time.Second

// notifyEvery is the least time between two transactions of an [Outbox] that notify.
const notifyEvery = 10 * time.Millisecond

// echoes are the times between the calls of wake that follow a notification, for the rows of
// transactions that did not notify and committed a little later.
var echoes = []time.Duration{
	notifyEvery, 2 * notifyEvery, 4 * notifyEvery, 8 * notifyEvery,
}

// notifier chooses the transactions that notify. Safe for concurrent use.
type notifier struct {
	began time.Time
	next  atomic.Int64 // when a transaction notifies again, in nanoseconds after began
}

// due reports whether a transaction that adds entries now should notify. Among those within
// notifyEvery, only the first should.
func (n *notifier) due(now time.Time) bool {
	at, next := int64(now.Sub(n.began)), n.next.Load()
	return at >= next && n.next.CompareAndSwap(next, at+int64(notifyEvery))
}

// Wake implements [outbox.Waker]. Wake calls wake once at the start, because rows may have come
// before. After each commit that notifies, Wake calls wake at once and four times more within 150
// ms, see [Notify]. Wake returns nil when ctx ends, and an error when the connection is lost: call
// Wake again then.
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
	for echo := len(echoes); ; {
		wake()
		wait := listenCheck
		if echo < len(echoes) {
			wait = echoes[echo]
		}
		notified, err := heard(ctx, conn, wait)
		if err == nil && !notified && echo == len(echoes) {
			err = ping(ctx, conn)
		}
		if err != nil {
			return o.wakeEnd(ctx, err)
		}
		echo = min(echo+1, len(echoes))
		if notified {
			echo = 0
		}
	}
}

// heard waits for a notification, and reports whether one came in time.
func heard(ctx context.Context, conn *pgx.Conn, wait time.Duration) (bool, error) {
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := conn.WaitForNotification(bounded)
	if bounded.Err() != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return err == nil, err
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	bounded, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	return conn.Ping(bounded)
}

func (o *Outbox) wakeEnd(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return o.failed("listen", err)
	}
}
