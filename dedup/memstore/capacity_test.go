package memstore_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

func requests(from, n int, retention time.Duration) []dedup.Request {
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i] = dedup.Request{Key: dedup.Key{ID: fmt.Sprintf("%08d", from+i)}, Retention: retention}
	}
	return reqs
}

// finish claims and completes n keys.
func finish(t testing.TB, s *memstore.Store, from, n int, retention time.Duration) {
	t.Helper()
	tok, reqs, answers := dedup.NewToken(), requests(from, n, retention), make([]dedup.Answer, n)
	require.NoError(t, s.Claim(t.Context(), tok, time.Minute, reqs, answers))
	done := make([]dedup.Completion, n)
	for i, a := range answers {
		require.Equal(t, dedup.Fresh, a.Verdict, "%q", reqs[i].Key)
		done[i] = dedup.Completion{Claim: reqs[i].Held(tok, a), Retention: retention}
	}
	require.NoError(t, s.Complete(t.Context(), done))
}

// H-21, rule 31: a full store returns an error and evicts no record, and known events go on.
func TestFullRefusesNewKeysAndForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Capacity(10))
		finish(t, s, 0, 8, time.Hour)
		answers := make([]dedup.Answer, 3)
		err := s.Claim(t.Context(), dedup.NewToken(), time.Minute, requests(8, 3, time.Hour), answers)
		require.ErrorIs(t, err, dedup.ErrFull)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.Equal(t, make([]dedup.Answer, 3), answers)
		require.Equal(t, 8, s.Len(), "all or nothing")
		finish(t, s, 8, 2, 2*time.Hour)
		for i := range 10 { // the known keys need no room
			require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, requests(i, 1, time.Hour), answers[:1]))
			require.Equal(t, dedup.Done, answers[0].Verdict)
		}
		require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, requests(7, 3, time.Hour), answers))
		require.ErrorIs(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, requests(7, 4, time.Hour),
			make([]dedup.Answer, 4)), dedup.ErrFull)

		time.Sleep(time.Hour) // eight of them expire, and make room in the order in which they do
		finish(t, s, 100, 8, time.Hour)
		require.Equal(t, 10, s.Len())
		require.ErrorIs(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, requests(200, 1, time.Hour),
			answers[:1]), dedup.ErrFull)
	})
}

// H-21: expired records are forgotten a few at a time, by the calls of the store.
func TestMemoryFollowsTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		const batch = 50
		most := 0
		for i := range 400 {
			finish(t, s, i*batch, batch, 10*time.Second)
			time.Sleep(time.Second)
			most = max(most, s.Len())
		}
		require.LessOrEqual(t, most, 12*batch, "ten seconds of events, not four hundred")

		s = memstore.New()
		finish(t, s, 0, 1000, time.Second)
		time.Sleep(time.Minute)
		require.Equal(t, 1000, s.Len())
		finish(t, s, 5000, 1, time.Hour)
		require.GreaterOrEqual(t, s.Len(), 1001-18, "one call does not pay for all")
		for i := range 100 {
			finish(t, s, 6000+i, 1, time.Hour)
		}
		require.Equal(t, 101, s.Len())
	})
}

func TestExpiredIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		finish(t, s, 0, 1, time.Hour)
		finish(t, s, 1, 40, 3*time.Hour) // to have more than one in the heap
		a := make([]dedup.Answer, 1)
		claim := func() dedup.Verdict {
			require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, requests(0, 1, time.Hour), a))
			return a[0].Verdict
		}
		time.Sleep(time.Hour - 1)
		require.Equal(t, dedup.Done, claim())
		time.Sleep(time.Nanosecond)
		require.Equal(t, dedup.Fresh, claim())
		time.Sleep(time.Minute + time.Hour - 1) // a claim lives for its lease and its retention (rule 33)
		require.Equal(t, dedup.Uncertain, claim())
		time.Sleep(time.Minute + time.Hour)
		require.Equal(t, dedup.Fresh, claim())
	})
}

// Rule 31.
func TestVolatile(t *testing.T) {
	require.ErrorContains(t, memstore.New().Volatile(), "memstore.Volatile()")
	require.NoError(t, memstore.New(memstore.Volatile()).Volatile())
	require.NoError(t, memstore.New(memstore.Capacity(-1), memstore.Volatile()).Volatile())
}

// A caller may change its own slices.
func TestResultsAreCopies(t *testing.T) {
	s := memstore.New()
	tok, reqs, a := dedup.NewToken(), requests(0, 1, time.Hour), make([]dedup.Answer, 1)
	require.NoError(t, s.Claim(t.Context(), tok, time.Minute, reqs, a))
	data := []byte("paid")
	require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{
		Claim: reqs[0].Held(tok, a[0]), Retention: time.Hour, Result: dedup.Result{Schema: 1, Data: data},
	}}))
	copy(data, "XXXX")
	for range 2 {
		require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, a))
		require.Equal(t, "paid", string(a[0].Result.Data))
		copy(a[0].Result.Data, "YYYY")
	}
}

func TestLeaseMustBePositive(t *testing.T) {
	s := memstore.New()
	for _, lease := range []time.Duration{0, -1} {
		require.Error(t, s.Claim(t.Context(), dedup.NewToken(), lease, requests(0, 1, time.Hour), make([]dedup.Answer, 1)))
		require.Error(t, s.Renew(t.Context(), lease, nil))
	}
	require.Zero(t, s.Len())
}

// meddle does all that a person can do to key.
func meddle(t *testing.T, s *memstore.Store, key dedup.Key) {
	ctx, at := t.Context(), dedup.DeferredPartition{Topic: "t"}
	_, _ = s.Inspect(ctx, key)
	_ = s.Forget(ctx, key)
	_ = s.Discard(ctx, key, time.Millisecond, "x")
	_, _ = s.Import(ctx, []dedup.Imported{{Key: key, Retention: time.Millisecond}})
	_ = s.List(ctx, dedup.Filter{}, 1, func(dedup.Record) bool { return true })
	_, _ = s.Find(ctx, "", key.ID)
	_ = s.Defer(ctx, at, []dedup.Deferred{{Key: key, Queue: "q"}})
	_, _, _ = s.Due(ctx, at, 1)
	_, _ = s.Remove(ctx, at, "q", dedup.Deferred{Key: key})
}

// Real goroutines and real time, for the race detector.
func TestConcurrentUse(t *testing.T) {
	s := memstore.New(memstore.Capacity(300))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 300 {
				tok, reqs, answers := dedup.NewToken(), requests((i*7+w)%50, 5, time.Millisecond), make([]dedup.Answer, 5)
				if s.Claim(t.Context(), tok, time.Millisecond, reqs, answers) != nil {
					continue
				}
				for j, a := range answers {
					if !a.Verdict.Held() {
						continue
					}
					c := reqs[j].Held(tok, a)
					_ = s.Renew(t.Context(), time.Millisecond, []dedup.Claim{c})
					if j%2 == 0 {
						_ = s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: time.Millisecond}})
					} else {
						_ = s.Release(t.Context(), []dedup.Release{{Claim: c, Retention: time.Millisecond}})
					}
				}
				_, _ = s.Reopen(t.Context(), reqs[0].Key)
				meddle(t, s, reqs[i%5].Key)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.Len(), 55)
}
