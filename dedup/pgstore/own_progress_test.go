package pgstore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// TestOwnLoopsForget_Rule8: 50 events of a loop of one's own, by HandleBatch or by a lane, expire. When the loop has gone on for longer
// than their retention, the reaper deletes them, and not before.
func TestOwnLoopsForget_Rule8(t *testing.T) {
	for name, loop := range map[string]func(t *testing.T, p *idem.Processor, msgs []*idem.Message){
		"HandleBatch": func(t *testing.T, p *idem.Processor, msgs []*idem.Message) {
			n, err := p.HandleBatch(t.Context(), msgs)
			require.NoError(t, err)
			require.Len(t, msgs, n)
		},
		"lane": func(t *testing.T, p *idem.Processor, msgs []*idem.Message) {
			p.Assigned("payments", 0)
			l := lane.New(p, "payments", 0, lane.Config{Lanes: 3})
			for _, m := range msgs {
				require.NoError(t, l.Push(t.Context(), m))
			}
			last := msgs[len(msgs)-1].Offset + 1
			require.Eventually(t, func() bool { next, _ := l.Watermark(); return next == last }, 30*time.Second, 5*time.Millisecond)
			require.NoError(t, l.Close(t.Context(), nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, pool := newStore(t)
			run := func(msgs []*idem.Message) {
				r := idem.NewRouter(idem.ID(idem.FromHeader("event-id")), idem.Type(idem.FromHeader("event-type")))
				idem.On(r, "paid", func(context.Context, idem.Event[payload]) error { return nil }, idem.Retention(75*time.Second))
				p, err := idem.NewProcessor(r, idem.Config{
					Store: s, Scope: "orders", Lease: time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
				})
				require.NoError(t, err)
				loop(t, p, msgs)
				require.NoError(t, p.Close())
			}
			e := &engine{t: t}
			var msgs []*idem.Message
			for i := range 50 {
				m := e.message("paid", fmt.Sprint("e", i))
				m.Time = ago(3 * time.Hour)
				msgs = append(msgs, m)
			}
			run(msgs)
			makeOlder(t, pool, 2*time.Hour) // they have expired by the clock on the wall
			for range 2 {
				result := reap(t, s, soonest())
				require.Len(t, result.Scopes, 1, "the scope records progress")
				require.Zero(t, result.Claims, "nothing was consumed since they expired")
			}
			require.Len(t, left(t, pool), 50)

			next := e.message("paid", "later")
			next.Time = ago(time.Hour)
			run([]*idem.Message{next})
			reap(t, s, soonest()) // announced
			require.EqualValues(t, 50, reap(t, s, soonest()).Claims)
			require.Equal(t, []string{"key/later"}, left(t, pool))
		})
	}
}

// makeOlder lets all that is known of claims have happened so much earlier.
func makeOlder(t *testing.T, pool *pgxpool.Pool, by time.Duration) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `UPDATE idempotency_keys SET created_at = created_at - s, updated_at = updated_at - s,
		expires_at = expires_at - s FROM (SELECT $1::float8 * interval '1 second' AS s) c`, by.Seconds())
	require.NoError(t, err)
}
