package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/faketime"
	"github.com/stretchr/testify/require"
)

// faulty is a store that counts calls, and passes each one to a function of the test. The argument
// call makes the real call.
type faulty struct {
	dedup.Store
	claims, completes, releases    atomic.Int64
	onClaim, onComplete, onRelease func(ctx context.Context, call func() error) error
	onRenew                        func() error
	limit                          int // of results; zero: no limit
}

func through(ctx context.Context, way func(context.Context, func() error) error, call func() error) error {
	if way == nil {
		return call()
	}
	return way(ctx, call)
}

func (s *faulty) Claim(ctx context.Context, t dedup.Token, lease time.Duration, r []dedup.Request, a []dedup.Answer) error {
	s.claims.Add(1)
	return through(ctx, s.onClaim, func() error { return s.Store.Claim(ctx, t, lease, r, a) })
}

func (s *faulty) Complete(ctx context.Context, done []dedup.Completion) error {
	s.completes.Add(1)
	return through(ctx, s.onComplete, func() error { return s.Store.Complete(ctx, done) })
}

func (s *faulty) Release(ctx context.Context, r []dedup.Release) error {
	s.releases.Add(1)
	return through(ctx, s.onRelease, func() error { return s.Store.Release(ctx, r) })
}

func (s *faulty) Renew(ctx context.Context, lease time.Duration, c []dedup.Claim) error {
	if s.onRenew != nil {
		return s.onRenew()
	}
	return s.Store.Renew(ctx, lease, c)
}

func (s *faulty) MaxResult() int {
	if s.limit == 0 {
		return 1 << 30
	}
	return s.limit
}

var errDown = fmt.Errorf("%w: connection refused", dedup.ErrUnavailable)

func dropped(context.Context, func() error) error { return errDown }

// answerLost lets a call arrive, and its answer not.
func answerLost(_ context.Context, call func() error) error {
	_ = call()
	return fmt.Errorf("%w: connection reset", dedup.ErrUnavailable)
}

// first puts way in the way of the first n calls.
func first(n int, way func(context.Context, func() error) error) func(context.Context, func() error) error {
	var calls atomic.Int64
	return func(ctx context.Context, call func() error) error {
		if calls.Add(1) <= int64(n) {
			return way(ctx, call)
		}
		return call()
	}
}

// desk is two processes, here and there, that share a store.
type desk struct {
	*testing.T
	s           *faulty // seen from here
	mem         *memstore.Store
	here, there *dedup.Guard
	runs        atomic.Int64
}

// atDesk runs test in a bubble; a goroutine that is left behind fails it.
func atDesk(t *testing.T, cfg dedup.GuardConfig, test func(d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		mem := memstore.New()
		s := &faulty{Store: mem}
		d := &desk{T: t, s: s, mem: mem, here: dedup.NewGuard(s, cfg), there: dedup.NewGuard(mem, cfg)}
		defer d.there.Close()
		defer d.here.Close()
		test(d)
	})
}

type paid struct {
	Receipt int64
}

var thisKey = dedup.Key{Scope: "pay", Type: "order", ID: "A234"}

// pay takes that long and counts.
func (d *desk) pay(takes time.Duration) func(context.Context) (paid, error) {
	return func(ctx context.Context) (paid, error) {
		n := d.runs.Add(1)
		select {
		case <-time.After(takes):
			return paid{Receipt: n}, nil
		case <-ctx.Done():
			return paid{}, ctx.Err()
		}
	}
}

func (d *desk) do(g *dedup.Guard, takes time.Duration, opts ...dedup.DoOption) (paid, bool, error) {
	return dedup.Do(d.Context(), g, thisKey, d.pay(takes), opts...)
}

// replays requires the key to be done, in both processes, with that result.
func (d *desk) replays(receipt int64) {
	d.Helper()
	for _, g := range []*dedup.Guard{d.here, d.there} {
		r, replayed, err := d.do(g, 0)
		require.NoError(d, err)
		require.True(d, replayed)
		require.Equal(d, receipt, r.Receipt)
	}
}

// fails requires both processes to get err, without a run.
func (d *desk) fails(want error) {
	d.Helper()
	ran := d.runs.Load()
	for _, g := range []*dedup.Guard{d.here, d.there} {
		_, replayed, err := d.do(g, 0, dedup.WaitFor(-1))
		require.ErrorIs(d, err, want)
		require.ErrorContains(d, err, thisKey.String())
		require.False(d, replayed)
	}
	require.Equal(d, ran, d.runs.Load(), "nothing may run")
}

// outcome is the result of one of many callers, with its time.
type outcome struct {
	paid
	replayed bool
	err      error
	after    time.Duration
}

// together calls do n times at once.
func together(n int, do func(i int) (paid, bool, error)) []outcome {
	all := make([]outcome, n)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range n {
		wg.Go(func() {
			o := &all[i]
			o.paid, o.replayed, o.err = do(i)
			o.after = time.Since(began)
		})
	}
	wg.Wait()
	return all
}

// H-04: 200 callers of each of 40 keys, in two processes: one run for each key, and its result for all.
func TestDo_OnceForEachKey_H04(t *testing.T) {
	const keys, callers = 40, 200
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		var runs [keys]atomic.Int64
		all := together(keys*callers, func(i int) (paid, bool, error) {
			n, g := i%keys, d.here
			if i/keys%2 == 1 {
				g = d.there
			}
			key := dedup.Key{Scope: "pay", ID: fmt.Sprint(n)}
			return dedup.Do(d.Context(), g, key, func(context.Context) (paid, error) {
				time.Sleep(2 * time.Second)
				return paid{Receipt: int64(n)*1000 + runs[n].Add(1)}, nil
			})
		})
		ran := 0
		for i, o := range all {
			require.NoError(d, o.err)
			require.EqualValues(d, i%keys*1000+1, o.Receipt)
			if !o.replayed {
				ran++
			}
		}
		require.Equal(d, keys, ran, "the one who ran it is told so, and nobody else")
		for n := range runs {
			require.EqualValues(d, 1, runs[n].Load())
		}
		require.LessOrEqual(d, d.s.claims.Load(), int64(keys*6), "callers share what they ask")
	})
}

func TestDo_WaitIsBounded(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		all := together(5, func(i int) (paid, bool, error) {
			switch i {
			case 0:
				return d.do(d.here, 8*time.Second)
			case 1:
				time.Sleep(time.Millisecond)
				return d.do(d.here, 0)
			case 2:
				time.Sleep(time.Millisecond)
				return d.do(d.here, 0, dedup.WaitFor(-1))
			case 3:
				time.Sleep(time.Millisecond)
				return d.do(d.there, 0, dedup.WaitFor(1200*time.Millisecond))
			}
			time.Sleep(2 * time.Millisecond)
			return d.do(d.there, 0, dedup.WaitFor(-1))
		})
		require.NoError(d, all[0].err)
		for i, after := range []time.Duration{1: 5001 * time.Millisecond, time.Millisecond, 1201 * time.Millisecond,
			2 * time.Millisecond} {
			if i > 0 {
				require.ErrorIs(d, all[i].err, dedup.ErrInFlight)
				require.Equal(d, after, all[i].after, "caller %d", i)
			}
		}
		require.EqualValues(d, 1, d.runs.Load())
		d.replays(1)
	})
}

// If another process has the key, one of the waiting callers asks for the key each 500 ms, for all
// of them.
func TestDo_OnePollForAll(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		all := together(51, func(i int) (paid, bool, error) {
			if i == 0 {
				return d.do(d.there, 2200*time.Millisecond)
			}
			time.Sleep(time.Duration(i) * time.Millisecond)
			return d.do(d.here, 0)
		})
		for i, o := range all {
			require.NoError(d, o.err)
			require.EqualValues(d, 1, o.Receipt)
			if i > 0 {
				require.True(d, o.replayed)
				require.Equal(d, 2501*time.Millisecond, o.after, "at the poll after the end")
			}
		}
		require.EqualValues(d, 6, d.s.claims.Load())
	})
}

// The caller that polls for all leaves, and another one polls for the rest.
func TestDo_TheLeaderOfThoseWhoWaitGoes(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		ctx, cancel := context.WithCancelCause(d.Context())
		tired := errors.New("tired of waiting")
		all := together(4, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			switch i {
			case 0:
				return d.do(d.there, 3*time.Second)
			case 1: // leads
				return dedup.Do(ctx, d.here, thisKey, d.pay(0))
			case 2: // follows, and goes first
				time.AfterFunc(1100*time.Millisecond, func() { cancel(tired) })
				return dedup.Do(ctx, d.here, thisKey, d.pay(0))
			}
			return d.do(d.here, 0)
		})
		require.ErrorIs(d, all[1].err, tired)
		require.ErrorIs(d, all[2].err, tired)
		require.Equal(d, 1102*time.Millisecond, all[1].after)
		require.Equal(d, 1102*time.Millisecond, all[2].after)
		require.NoError(d, all[3].err)
		require.EqualValues(d, 1, all[3].Receipt)
		require.EqualValues(d, 1, d.runs.Load())
	})
}

// Callers without a wait budget, and more callers than may wait, get the result of a key that is
// done: a question is no wait.
func TestDo_ReplaysNeedNoWait(t *testing.T) {
	atDesk(t, dedup.GuardConfig{Wait: -1, MaxWaiters: 3}, func(d *desk) {
		_, _, err := d.do(d.here, time.Second)
		require.NoError(d, err)
		d.s.claims.Store(0)
		d.s.onClaim = func(_ context.Context, call func() error) error {
			time.Sleep(time.Millisecond) // the round trip
			return call()
		}
		for _, o := range together(100, func(int) (paid, bool, error) { return d.do(d.here, 0) }) {
			require.NoError(d, o.err)
			require.True(d, o.replayed)
			require.EqualValues(d, 1, o.Receipt)
		}
		require.EqualValues(d, 1, d.s.claims.Load(), "one round trip for all")
	})
}

func TestDo_MaxWaiters(t *testing.T) {
	for name, where := range map[string]func(d *desk) *dedup.Guard{
		"the key is ours":     func(d *desk) *dedup.Guard { return d.here },
		"another process has": func(d *desk) *dedup.Guard { return d.there },
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, dedup.GuardConfig{MaxWaiters: 7}, func(d *desk) {
				all := together(20, func(i int) (paid, bool, error) {
					if i == 0 {
						return d.do(where(d), time.Second)
					}
					time.Sleep(time.Millisecond)
					return d.do(d.here, 0)
				})
				served := 0
				for _, o := range all[1:] {
					if o.err == nil {
						served++
						continue
					}
					require.ErrorIs(d, o.err, dedup.ErrInFlight)
					require.Equal(d, time.Millisecond, o.after, "at once")
				}
				if where(d) == d.there {
					served-- // the caller that polls for all is not among the waiting ones
				}
				require.Equal(d, 7, served)
			})
		})
	}
}

// A caller that stops waiting makes room for others.
func TestDo_WaitersComeAndGo(t *testing.T) {
	atDesk(t, dedup.GuardConfig{MaxWaiters: 1}, func(d *desk) {
		all := together(6, func(i int) (paid, bool, error) {
			if i == 0 {
				return d.do(d.here, 10*time.Second)
			}
			time.Sleep(time.Duration(i) * time.Second)
			return d.do(d.here, 0, dedup.WaitFor(900*time.Millisecond))
		})
		for i, o := range all[1:] {
			require.ErrorIs(d, o.err, dedup.ErrInFlight)
			require.Equal(d, time.Duration(i+1)*time.Second+900*time.Millisecond, o.after)
		}
	})
}

// H-07: a process that dies leaves the key in flight for its lease, and in doubt after it.
func TestDo_ProcessDies_H07(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		req := dedup.Request{Key: thisKey, Retention: time.Hour}
		require.NoError(d, d.mem.Claim(d.Context(), dedup.NewToken(), lease, []dedup.Request{req}, make([]dedup.Answer, 1)))
		for range 29 {
			d.fails(dedup.ErrInFlight)
			time.Sleep(time.Second)
		}
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		_, _, err := d.do(d.here, 0) // waits
		require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		require.Equal(d, 700*time.Millisecond, time.Since(began), "until the lease is over")
		for range 3 {
			d.fails(dedup.ErrUnknownOutcome)
			time.Sleep(time.Hour)
		}
		require.Zero(d, d.runs.Load())

		bold := dedup.NewGuard(d.mem, dedup.GuardConfig{Rerun: true})
		defer bold.Close()
		r, replayed, err := d.do(bold, 0)
		require.NoError(d, err)
		require.False(d, replayed)
		require.EqualValues(d, 1, r.Receipt)
		d.replays(1)
	})
}

// A person decides that an unknown outcome had no effect, or gives the key up.
func TestDo_APersonDecides(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		unknown := func(context.Context) (paid, error) { return paid{}, fmt.Errorf("odd: %w", dedup.ErrUnknownOutcome) }
		_, _, err := dedup.Do(d.Context(), d.here, thisKey, unknown)
		require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		d.fails(dedup.ErrUnknownOutcome)
		require.NoError(d, d.mem.Forget(d.Context(), thisKey))
		_, _, err = dedup.Do(d.Context(), d.here, thisKey, unknown)
		require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		require.NoError(d, d.mem.Discard(d.Context(), thisKey, time.Hour, "refunded"))
		d.fails(dedup.ErrGivenUp)
		_, _, err = d.do(d.here, 0)
		require.ErrorContains(d, err, "refunded")
	})
}

// After an error the function may run again, and each waiting caller tries in turn.
func TestDo_ErrorRunsAgain(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		declined := errors.New("declined")
		all := together(6, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			return dedup.Do(d.Context(), d.here, thisKey, func(context.Context) (paid, error) {
				time.Sleep(100 * time.Millisecond)
				if n := d.runs.Add(1); n < 4 {
					return paid{}, declined
				}
				return paid{Receipt: d.runs.Load()}, nil
			})
		})
		failed := 0
		for _, o := range all {
			if o.err != nil {
				require.Equal(d, declined, o.err, "as it is")
				failed++
				continue
			}
			require.EqualValues(d, 4, o.Receipt)
		}
		require.Equal(d, 3, failed)
		d.replays(4)
	})
}

// H-05, rule 13: a run that the end of its context cut short may have had its effect. A run that
// failed in another way has not, even if its context has ended too.
func TestDo_CallerHangsUp_H05(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		ctx, cancel := context.WithTimeout(d.Context(), time.Second)
		defer cancel()
		_, _, err := dedup.Do(ctx, d.here, thisKey, func(context.Context) (paid, error) {
			<-ctx.Done()
			return paid{}, errors.New("card was declined")
		})
		require.ErrorContains(d, err, "declined")
		_, _, err = dedup.Do(ctx, d.here, thisKey, d.pay(0))
		require.ErrorIs(d, err, context.DeadlineExceeded, "nothing runs for a caller who has gone")
		require.Zero(d, d.runs.Load())

		ctx, cancel = context.WithTimeout(d.Context(), time.Second)
		defer cancel()
		_, _, err = dedup.Do(ctx, d.here, thisKey, d.pay(time.Minute))
		require.ErrorIs(d, err, context.DeadlineExceeded)
		d.fails(dedup.ErrUnknownOutcome)
		require.EqualValues(d, 1, d.runs.Load())
	})
}

// H-05: a caller that hangs up does not cost the result of a run that went on to its end.
func TestDo_ResultOutlivesItsCaller_H05(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		ctx, cancel := context.WithCancel(d.Context())
		r, _, err := dedup.Do(ctx, d.here, thisKey, func(context.Context) (paid, error) {
			cancel()
			return paid{Receipt: 7}, nil
		})
		require.NoError(d, err)
		require.EqualValues(d, 7, r.Receipt)
		d.replays(7)
	})
}

// H-09: the outcome of a run that panicked or ended its goroutine is unknown. Waiting callers get
// an error at once.
func TestDo_PanicAndGoexit_H09(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("odd") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, dedup.GuardConfig{}, func(d *desk) {
				all := together(5, func(i int) (r paid, replayed bool, err error) {
					if i > 0 {
						time.Sleep(time.Millisecond)
						return d.do(d.here, 0)
					}
					defer func() {
						if recover() != nil || name == "Goexit" {
							err = errors.New("gone")
						}
					}()
					return dedup.Do(d.Context(), d.here, thisKey, func(context.Context) (paid, error) {
						time.Sleep(time.Second)
						end()
						return paid{}, nil
					})
				})
				for _, o := range all[1:] {
					require.ErrorIs(d, o.err, dedup.ErrUnknownOutcome)
					require.Equal(d, time.Second, o.after)
				}
				d.fails(dedup.ErrUnknownOutcome)
				require.False(d, d.here.Running(thisKey))
			})
		})
	}
}

// After Close no function begins. Results are still replayed, and the context of a running function
// ends.
func TestGuard_Close(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		other := dedup.Key{Scope: "pay", ID: "done before"}
		_, _, err := dedup.Do(d.Context(), d.here, other, d.pay(0))
		require.NoError(d, err)
		all := together(3, func(i int) (paid, bool, error) {
			time.Sleep(time.Duration(i) * time.Second)
			switch i {
			case 0:
				return d.do(d.here, time.Minute)
			case 1:
				return d.do(d.here, 0)
			}
			d.here.Close()
			return paid{}, false, nil
		})
		require.ErrorIs(d, all[0].err, context.Canceled)
		require.ErrorIs(d, all[1].err, dedup.ErrLeaseRenewerClosed, "nothing is begun with a context that has ended")
		require.Equal(d, 2*time.Second, all[1].after)
		require.EqualValues(d, 2, d.runs.Load())
		_, replayed, err := dedup.Do(d.Context(), d.here, other, d.pay(0))
		require.NoError(d, err)
		require.True(d, replayed)
		_, _, err = d.do(d.there, 0)
		require.ErrorIs(d, err, dedup.ErrUnknownOutcome)
		d.here.Close()
	})
}

// H-21: the guard forgets a key when no caller uses it.
func TestGuard_RunningAndEntries(t *testing.T) {
	atDesk(t, dedup.GuardConfig{}, func(d *desk) {
		require.False(d, d.here.Running(thisKey))
		e, a, err := d.here.Enter(d.Context(), dedup.Call{Key: thisKey, Retention: time.Minute})
		require.NoError(d, err)
		require.Equal(d, dedup.Fresh, a.Verdict)
		require.Equal(d, thisKey, e.Claim().Key)
		require.True(d, d.here.Running(thisKey))
		require.False(d, d.there.Running(thisKey))
		time.Sleep(10 * lease) // renewed
		require.NoError(d, e.Context().Err())
		none, a, err := d.there.Enter(d.Context(), dedup.Call{Key: thisKey, Wait: -1})
		require.NoError(d, err)
		require.Nil(d, none)
		require.Equal(d, dedup.Busy, a.Verdict)

		want := dedup.Result{Schema: 9, Data: []byte("kept")}
		require.NoError(d, e.Complete(d.Context(), want))
		require.Error(d, e.Context().Err(), "over")
		require.ErrorContains(d, e.Release(d.Context(), dedup.Failed), "ended already")
		require.ErrorContains(d, e.Complete(d.Context(), dedup.Result{}), "ended already")
		require.False(d, d.here.Running(thisKey))
		for _, g := range []*dedup.Guard{d.here, d.there} {
			none, a, err := g.Enter(d.Context(), dedup.Call{Key: thisKey})
			require.NoError(d, err)
			require.Nil(d, none)
			require.Equal(d, want, a.Result)
		}
		time.Sleep(time.Minute) // its retention
		_, replayed, err := d.do(d.here, 0, dedup.KeepFor(time.Hour))
		require.NoError(d, err)
		require.False(d, replayed)
		time.Sleep(59 * time.Minute)
		d.replays(1)
		time.Sleep(time.Minute)
		_, replayed, err = d.do(d.here, 0)
		require.NoError(d, err)
		require.False(d, replayed)

		_, _, err = d.here.Enter(d.Context(), dedup.Call{})
		require.ErrorIs(d, err, dedup.ErrKey)
	})
}

func TestGuardConfig_Defaults(t *testing.T) {
	mem := memstore.New()
	want := dedup.GuardConfig{Lease: 30 * time.Second, Retention: 24 * time.Hour, Wait: 5 * time.Second,
		Poll: 500 * time.Millisecond, MaxWaiters: 256, StoreTimeout: 1500 * time.Millisecond}
	g := dedup.NewGuard(mem, dedup.GuardConfig{})
	require.Equal(t, want, g.Config())
	require.Same(t, mem, g.Store())
	wrong := dedup.GuardConfig{Lease: -1, Retention: -1, Poll: -1, MaxWaiters: -1, StoreTimeout: -1, Wait: 5 * time.Second}
	require.Equal(t, want, dedup.NewGuard(mem, wrong).Config())
	none := dedup.GuardConfig{Wait: -1}
	require.EqualValues(t, -1, dedup.NewGuard(mem, none).Config().Wait)
}
