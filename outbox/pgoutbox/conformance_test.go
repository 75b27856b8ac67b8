package pgoutbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox/outboxtest"
)

// newSite returns an outbox for the kit. queued: transactions have a queue.
func newSite(t testing.TB, queued bool, with ...configure) outboxtest.Site[pgx.Tx] {
	t.Helper()
	box, pool := newBox(t, append(with, maxConns(16))...)
	exec := func(ctx context.Context, text string, args ...any) error {
		_, err := pool.Exec(ctx, text, args...)
		return err
	}
	return outboxtest.Site[pgx.Tx]{
		Outbox: box,
		Begin: func(ctx context.Context) (pgx.Tx, error) {
			tx, err := pool.Begin(ctx)
			if err == nil && queued {
				tx = box.Queue(tx)
			}
			return tx, err
		},
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		Add:      box.Add,
		Savepoint: func(ctx context.Context, tx pgx.Tx) (inner pgx.Tx, undo, keep func(context.Context) error, err error) {
			inner, err = tx.Begin(ctx)
			if err != nil {
				return nil, nil, nil, err
			}
			return inner, inner.Rollback, inner.Commit, nil
		},
		States: func(ctx context.Context) (map[string]int, error) {
			rows, err := pool.Query(ctx, "SELECT event_id, state FROM idem_outbox")
			if err != nil {
				return nil, err
			}
			all := map[string]int{}
			var id string
			var state int
			_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error {
				all[id] = state
				return nil
			})
			return all, err
		},
		ExpireShards: func(ctx context.Context, shards []int) error {
			const text = "UPDATE idem_outbox_shards SET lease_until = clock_timestamp() - interval '1s'"
			if shards == nil {
				return exec(ctx, text)
			}
			return exec(ctx, text+" WHERE shard = ANY ($1)", shards)
		},
		ExpireRelays: func(ctx context.Context) error {
			return exec(ctx, "UPDATE idem_outbox_relays SET alive_until = clock_timestamp() - interval '1s'")
		},
		LoseRow: func(ctx context.Context, seq int64) error {
			if err := exec(ctx, "DELETE FROM idem_outbox WHERE seq = $1", seq); err != nil {
				return err
			}
			return exec(ctx, "SELECT setval(pg_get_serial_sequence('idem_outbox', 'seq'), $1, false)", seq)
		},
		LockShard: func(ctx context.Context, shard int) (func() error, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return nil, err
			}
			_, err = tx.Exec(ctx, "SELECT FROM idem_outbox_shards WHERE shard = $1 FOR UPDATE", shard)
			return func() error { return tx.Rollback(context.Background()) }, err
		},
	}
}

func TestConformance(t *testing.T) {
	for name, queued := range map[string]bool{"queue": true, "at once": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outboxtest.Run(t, func(t testing.TB) outboxtest.Site[pgx.Tx] { return newSite(t, queued) })
		})
	}
}

// P-17: entries come out as they were added in each execution mode, in one transaction or one each.
func TestRoundTrip(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) { outboxtest.RoundTrip(t, newSite(t, false, inMode(mode))) })
		t.Run(name+"-alone", func(t *testing.T) { outboxtest.RoundTripAlone(t, newSite(t, false, inMode(mode))) })
	}
}
