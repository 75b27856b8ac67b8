package pgoutbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// pause stays in the transaction for up to 10 ms.
func pause(ctx context.Context, tx pgx.Tx, r *rand.Rand) error {
	_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", r.Float64()/100)
	return err
}

// writeQueued adds to several aggregates, in any order, by several calls.
func writeQueued(ctx context.Context, pool *pgxpool.Pool, box *pgoutbox.Outbox, r *rand.Rand, name string) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	tx = box.Queue(tx)
	defer tx.Rollback(context.WithoutCancel(ctx))
	for i, k := range r.Perm(aggregates)[:1+r.IntN(aggregates)] {
		if err := box.Add(ctx, tx, entry(fmt.Sprint(k), fmt.Sprintf("%s.%d", name, i))); err != nil {
			return err
		}
		if err := pause(ctx, tx, r); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// writeAtOnce adds with one call and stays in the transaction afterwards.
func writeAtOnce(ctx context.Context, pool *pgxpool.Pool, box *pgoutbox.Outbox, r *rand.Rand, name string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := pause(ctx, tx, r); err != nil {
			return err
		}
		var entries []outbox.Entry
		for i, k := range r.Perm(aggregates)[:1+r.IntN(aggregates)] {
			entries = append(entries, entry(fmt.Sprint(k), fmt.Sprintf("%s.%d", name, i)))
		}
		if err := box.Add(ctx, tx, entries...); err != nil {
			return err
		}
		return pause(ctx, tx, r)
	})
}

const aggregates = 4

// Rule 22: within each aggregate, numbers ascend in the order of commits, which the server notes
// the times of. Transactions that add to many aggregates in any order never deadlock.
func TestNumbersFollowCommits(t *testing.T) {
	const writers, rounds = 32, 8
	box, pool := newBox(t, maxConns(writers))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	require.NoError(t, together(writers, func(w int) error {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		write := writeQueued
		if w%2 == 0 {
			write = writeAtOnce
		}
		for i := range rounds {
			if err := write(t.Context(), pool, box, r, fmt.Sprintf("%d.%d", w, i)); err != nil {
				return fmt.Errorf("writer %d, round %d: %w", w, i, err)
			}
		}
		return nil
	}))
	rows, err := pool.Query(t.Context(), `SELECT convert_from(key, 'UTF8'), seq, pg_xact_commit_timestamp(xmin) FROM idem_outbox ORDER BY seq`)
	require.NoError(t, err)
	last, n := map[string]time.Time{}, 0
	var key string
	var seq int64
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&key, &seq, &at}, func() error {
		require.False(t, at.Before(last[key]), "aggregate %s: row %d was committed at %s, the one before at %s", key, seq, at, last[key])
		last[key], n = at, n+1
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, writers*rounds)
	require.Len(t, last, aggregates)
}

// Rule 22: two calls of Add in a transaction without a queue take their locks one after the other,
// and can deadlock, as documented. Queue prevents that.
func TestTwoAddsCrosswise(t *testing.T) {
	box, pool := newBox(t)
	for _, queued := range []bool{false, true} {
		one, two := begin(t, pool), begin(t, pool)
		if queued {
			one, two = box.Queue(one), box.Queue(two)
		}
		require.NoError(t, box.Add(t.Context(), one, entry("A", "1")))
		require.NoError(t, box.Add(t.Context(), two, entry("B", "2")))
		other := make(chan error, 1)
		go func() {
			err := box.Add(t.Context(), one, entry("B", "3"))
			if err == nil {
				err = one.Commit(t.Context())
			} else {
				_ = one.Rollback(t.Context())
			}
			other <- err
		}()
		err := box.Add(t.Context(), two, entry("A", "4"))
		if err == nil {
			err = two.Commit(t.Context())
		} else {
			_ = two.Rollback(t.Context())
		}
		errs := []error{<-other, err}
		if queued {
			require.Equal(t, []error{nil, nil}, errs)
			continue
		}
		var code string
		for _, err := range errs {
			if err != nil {
				require.ErrorContains(t, err, "40P01")
				code = "40P01"
			}
		}
		require.Equal(t, "40P01", code, "the control did not deadlock: the test shows nothing")
	}
}

// A single entry locks the outbox, shared, and before its own aggregate: while another transaction
// has the whole outbox, the entry holds no lock that others could wait for.
func TestAddAloneLocksInOrder(t *testing.T) {
	box, pool := newBox(t)
	whole, alone := begin(t, pool), begin(t, pool)
	many := make([]outbox.Entry, 501)
	for i := range many {
		many[i] = entry(fmt.Sprint("k", i), fmt.Sprint(i))
	}
	require.NoError(t, box.Add(t.Context(), whole, many...))
	const held = `SELECT count(*) FILTER (WHERE granted), count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND pid = $1`
	pid, granted, all := alone.Conn().PgConn().PID(), 0, 0
	count := func() {
		require.NoError(t, pool.QueryRow(t.Context(), held, pid).Scan(&granted, &all))
	}
	added := make(chan error, 1)
	go func() { added <- box.Add(context.Background(), alone, entry("other", "alone")) }()
	require.Eventually(t, func() bool { count(); return all > 0 }, 10*time.Second, time.Millisecond)
	require.Equal(t, []int{0, 1}, []int{granted, all}, "it waits for the outbox alone")
	require.NoError(t, whole.Commit(t.Context()))
	require.NoError(t, <-added)
	count()
	require.Equal(t, []int{2, 2}, []int{granted, all})
	require.NoError(t, alone.Commit(t.Context()))
}
