package pgoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// isDeadlock reports whether the server has found a deadlock.
func isDeadlock(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "40P01"
}

// Rule 22: eight consumers emit for the same few aggregates, each in its own order, and change
// shared rows. Within an aggregate numbers ascend in the order of commits, by the server's record.
// No transaction deadlocks, and no event is lost or doubled.
func TestEmitInTheOrderOfCommits_Rule22(t *testing.T) {
	t.Parallel()
	const lanes, rounds, size, aggregates = 8, 6, 24, 7
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := newService(t)
	_, err := s.pool.Exec(t.Context(), "INSERT INTO acct SELECT i, 0 FROM generate_series(0, 99) i")
	require.NoError(t, err)
	var deadlocks atomic.Int32
	var all sync.WaitGroup
	for lane := range lanes {
		p := s.processor("orders", func(r *idem.Router) {
			idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
				var n uint64
				_, _ = fmt.Sscanf(e.ID, "e%d", &n)
				rng := rand.New(rand.NewPCG(seed, n))
				_, err := tx.Exec(ctx, "UPDATE acct SET bal = bal + 1 WHERE id = $1", rng.IntN(100))
				for _, to := range rng.Perm(aggregates)[:2] {
					err = errors.Join(err, s.box.Add(ctx, tx, send(fmt.Sprint("k", to))))
				}
				if isDeadlock(err) {
					deadlocks.Add(1)
				}
				return errors.Join(err, s.effect(ctx, tx, e.ID))
			}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		})
		all.Go(func() {
			for round := range rounds {
				var msgs []*idem.Message
				for i := range size {
					at := round*size + i
					msgs = append(msgs, s.at(fmt.Sprintf("e%d", lane*10_000+at), int32(lane), int64(at)))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := p.HandleBatch(ctx, msgs)
				cancel()
				if err != nil {
					t.Errorf("lane %d: %v", lane, err)
					return
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, deadlocks.Load())
	require.Zero(t, s.seen.deadlocks.Load(), "nor before a commit")
	require.Empty(t, s.deadLetters)
	require.Len(t, s.names(), lanes*rounds*size)
	require.Len(t, slices.Compact(s.names()), lanes*rounds*size)
	require.Len(t, slices.Compact(s.ids()), 2*lanes*rounds*size)
	require.Len(t, s.ids(), 2*lanes*rounds*size)
	s.ordered()
}

// ordered requires that the numbers of each aggregate ascend with the times of their commits.
func (s *service) ordered() {
	s.Helper()
	wrong := column[string](s, `SELECT format('%s: %s at %s, %s at %s', key, before, at_before, seq, at) FROM (
			SELECT encode(key, 'escape') AS key, seq, pg_xact_commit_timestamp(xmin) AS at, lag(seq) OVER w AS before,
			       lag(pg_xact_commit_timestamp(xmin)) OVER w AS at_before
			FROM idem_outbox WINDOW w AS (PARTITION BY topic, key ORDER BY seq)) r
		WHERE at < at_before`)
	require.Empty(s, wrong)
	require.NotZero(s, column[int](s, "SELECT count(DISTINCT pg_xact_commit_timestamp(xmin))::int FROM idem_outbox")[0])
}

// Rules 10 and 22: a foreign transaction writes to the aggregate and does not end. Events that emit
// for this aggregate wait, and no attempt is counted. Other events are handled meanwhile.
func TestEmitWaitsForAForeignTransaction_Rule10(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var runs atomic.Int32
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			if e.ID == "hot" {
				runs.Add(1)
				if e.Attempt != 1 {
					t.Errorf("attempt %d", e.Attempt)
				}
			}
			return errors.Join(s.effect(ctx, tx, e.ID), s.box.Add(ctx, tx, send(e.ID)))
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
	})
	s.trust(p)
	foreign := begin(t, s.pool)
	hot := send("hot")
	hot.ID = "foreign"
	require.NoError(t, s.box.Add(t.Context(), foreign, hot))
	msgs := s.messages("a", "b", "hot", "c")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := p.HandleBatch(ctx, msgs)
		done <- err
	}()
	require.Eventually(t, func() bool { return runs.Load() >= 4 }, 30*time.Second, 20*time.Millisecond, "it is tried again and again")
	require.Equal(t, []string{"a", "b"}, s.names(), "what is in front of it goes on")
	require.NoError(t, foreign.Commit(ctx))
	require.NoError(t, <-done)
	require.Equal(t, []string{"a", "b", "c", "hot"}, s.names())
	require.Len(t, s.rows(), 5)
	require.Empty(t, s.deadLetters)
	s.ordered()
}

// Rule 22: entries without a key have no order and take no lock. A foreign transaction stops no
// other.
func TestEmitWithoutAKeyLocksNothing_Rule22(t *testing.T) {
	t.Parallel()
	s := newService(t)
	p := s.processor("orders", func(r *idem.Router) {
		idem.OnTx(r, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			return s.box.Add(ctx, tx, outbox.Entry{Topic: "invoices", Type: "invoice.due"})
		})
	})
	s.trust(p)
	foreign := begin(t, s.pool)
	require.NoError(t, s.box.Add(t.Context(), foreign, outbox.Entry{Topic: "invoices", Type: "invoice.due"}))
	s.settle(p, s.messages("a", "b", "c")...)
	require.Len(t, s.rows(), 3)
}
