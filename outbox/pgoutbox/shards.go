package pgoutbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// Hold implements [outbox.Store] in one transaction and one round trip. Relays that call Hold at
// the same time wait for each other only while a shard is being taken. A shard is neither renewed
// nor taken while a person retries or skips a row of it.
//
// A lease that ended, and that no other relay took, is renewed with its epoch: no other relay can
// have published in between.
func (o *Outbox) Hold(
	ctx context.Context, relay string, lease time.Duration, share bool,
) (held []outbox.Lease, err error) {
	err = o.atomic(ctx, func(q *statements, b *pgx.Batch) {
		left := lease.Microseconds()
		b.Queue(q.alive, relay, left)
		b.Queue(q.bury)
		b.Queue(q.renew, relay, left)
		if share {
			b.Queue(q.give, relay, outbox.Shards)
			b.Queue(q.take, relay, left, outbox.Shards)
		}
		b.Queue(q.held, relay).Query(func(rows pgx.Rows) (err error) {
			held, err = pgx.CollectRows(rows, pgx.RowToStructByPos[outbox.Lease])
			return err
		})
	})
	if err != nil {
		return nil, o.failed("hold shards", err)
	}
	return held, nil
}

// Leave implements [outbox.Store].
func (o *Outbox) Leave(ctx context.Context, relay string) error {
	return o.failed("leave shards", o.atomic(ctx, func(q *statements, b *pgx.Batch) {
		b.Queue(q.leaveShards, relay)
		b.Queue(q.leave, relay)
	}))
}
