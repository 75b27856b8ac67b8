package dedup_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// deaf is a store that takes calls and does not answer while it is shut, even after the end of
// their contexts, as the client of Redis does. The calls that it has taken are served when it
// opens.
type deaf struct {
	dedup.Store
	mu     sync.Mutex
	opened chan struct{} // nil: it answers
	taken  bool          // claims are granted at once, and only their answers wait
	asked  atomic.Int64
}

func (s *deaf) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = make(chan struct{})
}

func (s *deaf) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.opened)
	s.opened = nil
}

func (s *deaf) wait() {
	s.asked.Add(1)
	s.mu.Lock()
	opened := s.opened
	s.mu.Unlock()
	if opened != nil {
		<-opened
	}
}

func (s *deaf) Claim(ctx context.Context, t dedup.Token, lease time.Duration, r []dedup.Request, a []dedup.Answer) error {
	if s.taken {
		defer s.wait()
	} else {
		s.wait()
	}
	return s.Store.Claim(context.WithoutCancel(ctx), t, lease, r, a)
}

func (s *deaf) Release(ctx context.Context, r []dedup.Release) error {
	s.wait()
	return s.Store.Release(context.WithoutCancel(ctx), r)
}

func numbered(i int) dedup.Key { return dedup.Key{Scope: "pay", Type: "order", ID: fmt.Sprint(i)} }

// A store that accepts calls and never answers holds no caller up for longer than the time-out.
// After that, callers get an error at once, and the first call after the return of the store runs.
// Claims that were granted without an answer are given back.
func TestDo_StoreThatNeverAnswers(t *testing.T) {
	for _, taken := range []bool{false, true} {
		for _, callers := range []int{1, 60} {
			t.Run(fmt.Sprintf("%d callers, claims taken %v", callers, taken), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mem := memstore.New()
					s := &deaf{Store: mem, taken: taken}
					g, there := dedup.NewGuard(s, dedup.GuardConfig{}), dedup.NewGuard(mem, dedup.GuardConfig{})
					defer there.Close()
					defer g.Close()
					s.shut()
					var runs atomic.Int64
					do := func(g *dedup.Guard) func(i int) (paid, bool, error) {
						return func(i int) (paid, bool, error) {
							return dedup.Do(t.Context(), g, numbered(i), func(context.Context) (paid, error) {
								return paid{Receipt: runs.Add(1)}, nil
							}, dedup.WaitFor(-1))
						}
					}
					rounds := 1
					if callers == 1 {
						rounds = 3 // the third one opens the breaker
					}
					for range rounds {
						for _, o := range together(callers, do(g)) {
							require.ErrorIs(t, o.err, dedup.ErrUnavailable)
							require.Equal(t, dedup.DefaultStoreTimeout, o.after)
						}
					}
					asked := s.asked.Load()
					for range 3 {
						for _, o := range together(callers, do(g)) {
							require.ErrorIs(t, o.err, dedup.ErrUnavailable)
							require.Zero(t, o.after, "the breaker is open")
						}
					}
					require.Equal(t, asked, s.asked.Load())

					time.Sleep(time.Second)
					probes := 0
					for _, o := range together(callers, do(g)) {
						require.ErrorIs(t, o.err, dedup.ErrUnavailable)
						if o.after > 0 {
							probes++
						}
					}
					require.Equal(t, 1, probes)
					require.Zero(t, runs.Load())

					s.open()
					time.Sleep(time.Second)
					for i, o := range together(callers, do(there)) {
						require.NoError(t, o.err, "what nobody heard of is given back: %d", i)
						require.False(t, o.replayed)
					}
					for _, o := range together(1, do(g)) {
						require.NoError(t, o.err)
						require.True(t, o.replayed)
					}
					for _, o := range together(callers, do(g)) {
						require.NoError(t, o.err)
					}
				})
			})
		}
	}
}

// claims that wait in the queue of a shared call until their time is over have not reached the
// store. The store is the cause, and all callers learn that.
func TestGuard_ClaimsWaitForASharedCallInVain_R19(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharer{probe: &probe{Store: memstore.New()}}
		g := dedup.NewGuard(s, dedup.GuardConfig{StoreTimeout: 50 * time.Millisecond})
		defer g.Close()
		s.claiming(func(context.Context, []dedup.Request) error {
			time.Sleep(80 * time.Millisecond) // no slow call, which gets help
			return dedup.ErrUnavailable
		})
		for i, o := range together(50, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Microsecond)
			_, a, err := g.Enter(t.Context(), dedup.Call{Key: numbered(i), Wait: -1})
			require.Zero(t, a.Verdict)
			return paid{}, false, err
		}) {
			require.ErrorIs(t, o.err, dedup.ErrUnavailable, i)
		}
		require.EqualValues(t, 1, s.calls.Load())
	})
}

// a call of the store ends with the bare error of its context, when its time is over. The
// store is the cause, unless the caller's own time is over. A closed guard calls the store in the
// goroutine of the caller, so the error arrives for certain.
func TestGuard_StoreTakesTooLong_R19(t *testing.T) {
	bare := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.s.onClaim = func(ctx context.Context, _ func() error) error { return bare(ctx) }
		d.here.Close()
		_, _, err := d.here.Enter(d.Context(), dedup.Call{Key: thisKey})
		require.ErrorIs(d, err, dedup.ErrUnavailable)
		require.ErrorIs(d, d.here.Ask(d.Context(), bare), dedup.ErrUnavailable)
		own, cancel := context.WithTimeout(d.Context(), time.Second)
		defer cancel()
		_, _, err = d.here.Enter(own, dedup.Call{Key: thisKey})
		require.ErrorIs(d, err, context.DeadlineExceeded)
		require.NotErrorIs(d, err, dedup.ErrUnavailable)
		err = d.here.Ask(own, bare)
		require.ErrorIs(d, err, context.DeadlineExceeded)
		require.NotErrorIs(d, err, dedup.ErrUnavailable)
	})
}

// Rule 32: a claim is granted, and its call ends with the bare error of its context. The claim is
// given back, whether the call ends together with the wait for it, or shortly before.
func TestGuard_ClaimOfACallThatTookTooLongIsGivenBack_Rule32(t *testing.T) {
	together := func(ctx context.Context) { <-ctx.Done() }
	before := func(context.Context) { time.Sleep(dedup.DefaultStoreTimeout - time.Millisecond) }
	for _, wait := range []func(context.Context){together, before} {
		atDesk(t, dedup.GuardConfig{}, func(d *desk) {
			d.s.onClaim = func(ctx context.Context, call func() error) error {
				require.NoError(d, call())
				wait(ctx)
				return context.DeadlineExceeded
			}
			for range 20 {
				_, _, err := d.here.Enter(d.Context(), dedup.Call{Key: thisKey, Wait: -1})
				require.ErrorIs(d, err, dedup.ErrUnavailable)
				time.Sleep(time.Second)
				e, a, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey, Wait: -1})
				require.NoError(d, err)
				require.Equal(d, dedup.Fresh, a.Verdict)
				require.NoError(d, e.Release(d.Context(), dedup.Unstarted))
			}
		})
	}
}

// away lets claims be granted unheard, and no release arrive, until it is back.
func (d *desk) away() (back func()) {
	var here atomic.Bool
	way := func(lost func(context.Context, func() error) error) func(context.Context, func() error) error {
		return func(ctx context.Context, call func() error) error {
			if here.Load() {
				return call()
			}
			return lost(ctx, call)
		}
	}
	d.s.onClaim, d.s.onRelease = way(answerLost), way(dropped)
	return func() { here.Store(true) }
}

// A claim that was granted unheard is given back also by a store that stays away for longer, and callers do not wait for that.
func TestDo_GhostsAreGivenBackLater_Rule32(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		back := d.away()
		began := time.Now()
		for range 2 {
			_, _, err := d.do(d.here, 0)
			require.ErrorIs(d, err, dedup.ErrUnavailable)
		}
		require.Less(d, time.Since(began), 500*time.Millisecond)
		_, _, err := d.do(d.there, 0, dedup.WaitFor(-1))
		require.ErrorIs(d, err, dedup.ErrInFlight)
		time.Sleep(20 * time.Second)
		require.Less(d, d.s.releases.Load(), int64(20), "with pauses")
		back()
		time.Sleep(3 * time.Second)
		_, replayed, err := d.do(d.there, 0, dedup.WaitFor(-1))
		require.NoError(d, err)
		require.False(d, replayed)
	})
}

// A claim that cannot be given back is left to its lease after a while, and when the guard is
// closed.
func TestGuard_GhostsAreBounded(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		d.away()
		_, _, err := d.do(d.here, 0)
		require.ErrorIs(d, err, dedup.ErrUnavailable)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		tried := d.s.releases.Load()
		require.Greater(d, tried, int64(100))
		time.Sleep(time.Hour)
		require.Equal(d, tried, d.s.releases.Load())

		_, _, err = d.do(d.here, 0)
		require.ErrorIs(d, err, dedup.ErrUnavailable)
		began := time.Now()
		d.here.Close()
		require.Less(d, time.Since(began), 2*time.Second)
	})
}

// A store of transactions that does not come to the function is given up; the time of the function is its own.
func TestDoTx_StoreThatNeverAnswers(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, _, _ *dedup.Guard) {
		slow := &slowBooks{books: b}
		slow.hangs.Store(true)
		g := dedup.NewGuard(slow, dedup.GuardConfig{})
		defer g.Close()
		do := func(i int) (paid, bool, error) {
			return dedup.DoTx(t.Context(), g, numbered(i), time.Minute, func(context.Context, *page) (paid, error) {
				time.Sleep(30 * time.Second)
				return paid{Receipt: 1}, nil
			})
		}
		for _, o := range together(60, do) {
			require.ErrorIs(t, o.err, dedup.ErrUnavailable)
			require.Equal(t, dedup.DefaultStoreTimeout, o.after)
		}
		for _, o := range together(60, do) {
			require.ErrorIs(t, o.err, dedup.ErrUnavailable)
			require.Zero(t, o.after, "the breaker is open")
		}
		slow.hangs.Store(false)
		time.Sleep(time.Second)
		o := together(1, do)[0]
		require.NoError(t, o.err)
		require.Equal(t, 30*time.Second, o.after)
	})
}

// slowBooks heeds contexts, as Postgres's driver does.
type slowBooks struct {
	*books
	full, hangs atomic.Bool // full: there is no connection to be had
}

func (b *slowBooks) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*page) ([]dedup.Completion, error)) error {
	if !b.full.Load() {
		dedup.ClaimBegins(ctx)
	}
	if b.hangs.Load() {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, ctx.Err())
	}
	return b.books.ClaimTx(ctx, limit, reqs, answers, fn)
}

// Waiting for a connection is not waiting for an answer. It may take longer, and while transactions
// run it does not mean that the database is down. When other calls find that the database is down,
// the waiting calls get the error too.
func TestDoTx_NoConnection(t *testing.T) {
	atBooks(t, func(t *testing.T, b *books, _, _ *dedup.Guard) {
		slow := &slowBooks{books: b}
		g := dedup.NewGuard(slow, dedup.GuardConfig{})
		defer g.Close()
		do := func(takes time.Duration) func(i int) (paid, bool, error) {
			return func(i int) (paid, bool, error) {
				return dedup.DoTx(t.Context(), g, numbered(i), time.Minute, func(context.Context, *page) (paid, error) {
					time.Sleep(takes)
					return paid{Receipt: 1}, nil
				})
			}
		}
		var holder sync.WaitGroup
		holder.Go(func() { _, _, _ = do(15 * time.Second)(1000) })
		synctest.Wait()
		slow.hangs.Store(true)
		slow.full.Store(true)
		for _, o := range together(20, do(0)) {
			require.ErrorIs(t, o.err, dedup.ErrUnavailable)
			require.Equal(t, 10*time.Second, o.after)
		}
		slow.hangs.Store(false)
		for _, o := range together(20, do(0)) {
			require.NoError(t, o.err, "the breaker is closed")
		}
		holder.Wait()

		slow.hangs.Store(true)
		all := together(20, func(i int) (paid, bool, error) {
			if i >= 10 { // these have a connection that is silent
				time.Sleep(time.Second)
				slow.full.Store(false)
			}
			return do(0)(100 + i)
		})
		for i, o := range all {
			require.ErrorIs(t, o.err, dedup.ErrUnavailable)
			want := 3 * time.Second
			if i >= 10 {
				want = 2500 * time.Millisecond
			}
			require.Equal(t, want, o.after, "caller %d", i)
		}
	})
}
