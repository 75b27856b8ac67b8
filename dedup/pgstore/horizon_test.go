package pgstore_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// aged is a request for an event. at is the time of its record at the broker.
func aged(id string, at time.Time) dedup.Request {
	return dedup.Request{Key: dedup.Key{Scope: "g", Type: "x", ID: id}, Origin: dedup.Origin{Topic: "t", Time: at}, Retention: day}
}

// verdict claims in the way of a transaction, or with a lease.
func verdict(ctx context.Context, s *pgstore.Store, inTx bool, r dedup.Request) (dedup.Verdict, error) {
	var a [1]dedup.Answer
	reqs := []dedup.Request{r}
	if inTx {
		err := s.ClaimTx(ctx, time.Second, reqs, a[:], func(pgx.Tx) ([]dedup.Completion, error) { return nil, nil })
		return a[0].Verdict, err
	}
	err := s.Claim(ctx, dedup.NewToken(), time.Minute, reqs, a[:])
	return a[0].Verdict, err
}

// TestHorizon_Rewind_Rule8 (4): an operator rewinds the group to before the horizon. Events without
// their records are too old, and not fresh. Events that are still known are duplicates. Events
// after the horizon are judged as usual.
func TestHorizon_Rewind_Rule8(t *testing.T) {
	s, pool := newStore(t)
	put(t, pool, old{scope: "g", id: "gone", made: 3 * day, expired: day, origin: 3*day + time.Hour},
		old{scope: "g", id: "kept", made: 4 * day, origin: 4*day + time.Hour})
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	meets := func(want dedup.Verdict, r dedup.Request) {
		t.Helper()
		for _, inTx := range []bool{true, false} {
			got, err := verdict(t.Context(), s, inTx, r)
			require.NoError(t, err)
			require.Equal(t, want, got, "in a transaction: %v", inTx)
		}
	}
	meets(dedup.Done, aged("gone", ago(3*day+time.Hour)))
	reap(t, s, soonest())
	meets(dedup.Done, aged("gone", ago(3*day+time.Hour))) // announced only
	reap(t, s, soonest())
	require.Equal(t, []string{"event/kept", "key/kept"}, left(t, pool))
	meets(dedup.TooOld, aged("gone", ago(3*day+time.Hour)))
	meets(dedup.Done, aged("kept", ago(4*day)))
	meets(dedup.Fresh, aged("new", ago(2*day)))
	anyAge := aged("gone", ago(3*day+time.Hour))
	anyAge.AnyAge = true
	meets(dedup.Fresh, anyAge)
}

// TestHorizon_NeverFresh_Rule8: while a reaper works, old events are claimed again and again by
// calls that read before it and write after it. No such event is ever fresh.
func TestHorizon_NeverFresh_Rule8(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	many(t, pool, "g", 300)
	_, err := pool.Exec(t.Context(), `UPDATE processed_events SET origin_time = created_at - interval '1 hour';
		INSERT INTO idempotency_keys (tenant, scope, event_type, event_id, status, created_at, expires_at, origin_time)
		SELECT tenant, scope, event_type, event_id, 'done', created_at, expires_at, origin_time FROM processed_events`)
	require.NoError(t, err)
	record(t, s, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var claimers sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[dedup.Verdict]int)
	for w := range 4 {
		claimers.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				v, err := verdict(ctx, s, w%2 == 0, aged(strconv.Itoa(i%300+1), ago(3*day+time.Hour)))
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				mu.Lock()
				seen[v]++
				mu.Unlock()
			}
		})
	}
	cfg := soonest()
	cfg.Grace, cfg.Interval, cfg.Batch, cfg.Pause = 500*time.Millisecond, 50*time.Millisecond, 20, 5*time.Millisecond
	done := make(chan error, 1)
	go func() { done <- pgstore.NewReaper(s, cfg).Run(ctx) }()
	tooOld := func() int {
		mu.Lock()
		defer mu.Unlock()
		return seen[dedup.TooOld]
	}
	require.Eventually(t, func() bool { return len(left(t, pool)) == 0 && tooOld() > 600 }, time.Minute, 20*time.Millisecond)
	stop()
	claimers.Wait()
	require.NoError(t, <-done)
	require.Positive(t, seen[dedup.Done])
	delete(seen, dedup.Done)
	delete(seen, dedup.TooOld)
	require.Empty(t, seen)
}
