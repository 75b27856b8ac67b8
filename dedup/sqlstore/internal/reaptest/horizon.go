package reaptest

import (
	"context"
	"database/sql"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

// aged returns a request for an event. at is the time of the record at the broker.
func aged(id string, at time.Time) dedup.Request {
	return dedup.Request{Key: dedup.Key{Scope: "g", Type: "x", ID: id},
		Origin: dedup.Origin{Topic: "t", Time: at}, Retention: day}
}

// verdict claims an event in a transaction, or with a lease.
func verdict(ctx context.Context, s *sqlstore.Store, inTx bool, r dedup.Request) (
	dedup.Verdict, error) {
	var a [1]dedup.Answer
	reqs := []dedup.Request{r}
	if inTx {
		err := s.ClaimTx(ctx, time.Second, reqs, a[:],
			func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil })
		return a[0].Verdict, err
	}
	err := s.Claim(ctx, dedup.NewToken(), time.Minute, reqs, a[:])
	return a[0].Verdict, err
}

// rewind: after the deletion of its row, an event is TooOld and not Fresh. An event with a row is a
// duplicate. An event after the horizon is Fresh (rule 8).
func rewind(t *testing.T, site Site) {
	s := site.store(t)
	site.put(t, old{scope: "g", id: "gone", made: 3 * day, expired: day, origin: 3*day + time.Hour},
		old{scope: "g", id: "kept", made: 4 * day, origin: 4*day + time.Hour})
	record(t, s, "g", caughtUp())
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
	require.Equal(t, []string{"event/kept", "key/kept"}, site.left(t))
	meets(dedup.TooOld, aged("gone", ago(3*day+time.Hour)))
	meets(dedup.Done, aged("kept", ago(4*day)))
	meets(dedup.Fresh, aged("new", ago(2*day)))
	anyAge := aged("gone", ago(3*day+time.Hour))
	anyAge.AnyAge = true
	meets(dedup.Fresh, anyAge)
}

// movesBetweenReads: a reaper moves the horizon and deletes the row, just before a call reads the
// rows. The call still sees the new horizon (P-09).
func movesBetweenReads(t *testing.T, site Site) {
	type calling = func(context.Context, *sqlstore.Store, dedup.Request) (dedup.Verdict, error)
	for name, call := range map[string]calling{
		"look": func(ctx context.Context, s *sqlstore.Store, r dedup.Request) (dedup.Verdict, error) {
			var a [1]dedup.Answer
			err := s.Look(ctx, []dedup.Request{r}, a[:])
			return a[0].Verdict, err
		},
		"claim": func(ctx context.Context, s *sqlstore.Store, r dedup.Request) (dedup.Verdict, error) {
			return verdict(ctx, s, false, r)
		},
		"transaction": func(ctx context.Context, s *sqlstore.Store, r dedup.Request) (
			dedup.Verdict, error) {
			return verdict(ctx, s, true, r)
		},
	} {
		if site.Dialect().OneWriter && name != "look" {
			continue // a claim and a reaper exclude each other
		}
		site.exec(t, "DELETE FROM idem_horizons")
		site.put(t, old{scope: "g", id: name, made: 3 * day, expired: day, origin: 3*day + time.Hour})
		s := site.store(t)
		record(t, s, "g", caughtUp())
		d := site.Dialect()
		var once sync.Once
		expression := d.Micros
		d.Micros = func(column string) string {
			if column == "created_at" { // the query of the rows is written
				once.Do(func() {
					reap(t, s, soonest())
					reap(t, s, soonest())
				})
			}
			return expression(column)
		}
		v, err := call(t.Context(), site.Open(t, d), aged(name, ago(3*day+time.Hour)))
		require.NoError(t, err)
		require.Equal(t, dedup.TooOld, v, name)
		require.Empty(t, site.left(t))
	}
}

// neverFresh: old events are claimed again and again while a reaper works. No claim gets Fresh
// (P-09).
func neverFresh(t *testing.T, site Site) {
	s := site.store(t)
	site.many(t, 100, old{scope: "g", made: 3 * day, expired: 2 * day, origin: 3*day + time.Hour})
	record(t, s, "g", caughtUp())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var claimers sync.WaitGroup
	var mu sync.Mutex
	seen := make(map[dedup.Verdict]int)
	for w := range 4 {
		claimers.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				v, err := verdict(ctx, s, w%2 == 0, aged(strconv.Itoa(i%100), ago(3*day+time.Hour)))
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
	cfg.Interval, cfg.Batch, cfg.Pause = 50*time.Millisecond, 10, 5*time.Millisecond
	done := make(chan error, 1)
	go func() { done <- sqlstore.NewReaper(s, cfg).Run(ctx) }()
	tooOld := func() int {
		mu.Lock()
		defer mu.Unlock()
		return seen[dedup.TooOld]
	}
	require.Eventually(t, func() bool { return tooOld() > 200 && len(site.left(t)) == 0 },
		time.Minute, 20*time.Millisecond)
	stop()
	claimers.Wait()
	require.NoError(t, <-done)
	require.Positive(t, seen[dedup.Done])
	delete(seen, dedup.Busy) // of a transaction that waits for the only writer
	delete(seen, dedup.Done)
	delete(seen, dedup.TooOld)
	require.Empty(t, seen)
}

// claimedStays: expired events that wait for their next attempt are claimed while a reaper works.
// The reaper does not delete the row of a claim, so no event is Fresh twice.
func claimedStays(t *testing.T, site Site) {
	s, peer := site.store(t), site.store(t)
	const n = 200
	site.many(t, n, old{scope: "g", status: "released", made: 3 * day, expired: 2 * day,
		notEvent: true})
	record(t, s, "g", caughtUp())
	reap(t, s, soonest()) // the horizon moves
	var claimer sync.WaitGroup
	claimer.Go(func() {
		for i := range n { // the reaper goes the other way
			r := aged(strconv.Itoa(i), ago(3*day))
			r.AnyAge = true
			if v, err := verdict(t.Context(), s, false, r); err != nil || v != dedup.Fresh {
				t.Errorf("first claim of %d: %v, %v", i, v, err)
			}
		}
	})
	cfg := soonest()
	cfg.Batch = 50
	for range 3 {
		reap(t, peer, cfg)
	}
	claimer.Wait()
	reap(t, peer, cfg)
	for i := range n {
		r := aged(strconv.Itoa(i), ago(3*day))
		r.AnyAge = true
		v, err := verdict(t.Context(), s, false, r)
		require.NoError(t, err)
		require.Equal(t, dedup.Busy, v, "event %d is claimed", i)
	}
}

// claimedBetween: an event is claimed after the reaper has found its expired row, and before the
// reaper locks the row.
func claimedBetween(t *testing.T, site Site) {
	if site.Dialect().OneWriter {
		t.Skip("no hook runs between the two: see the test with claims at once")
	}
	peer := site.store(t)
	site.put(t, old{scope: "g", id: "a", status: "released", made: 3 * day, expired: 2 * day,
		notEvent: true})
	record(t, peer, "g", caughtUp())
	r := aged("a", ago(3*day))
	r.AnyAge = true
	d := site.Dialect()
	expression, begin := d.Micros, d.Begin
	found, claimed := 0, false
	d.Micros = func(column string) string {
		if column == "expires_at" { // only the search for rows reads the column as it is
			found++
		}
		return expression(column)
	}
	d.Begin = func(ctx context.Context, q sqlstore.Querier, wait, idle time.Duration) (
		func(context.Context) error, error) {
		if found == 1 && !claimed { // the table with the row was searched
			claimed = true
			v, err := verdict(ctx, peer, false, r)
			require.NoError(t, err)
			require.Equal(t, dedup.Fresh, v)
		}
		return begin(ctx, q, wait, idle)
	}
	s := site.Open(t, d)
	for range 2 {
		require.Zero(t, reap(t, s, soonest()).Claims)
	}
	require.True(t, claimed)
	v, err := verdict(t.Context(), peer, false, r)
	require.NoError(t, err)
	require.Equal(t, dedup.Busy, v)
}
