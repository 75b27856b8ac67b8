package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

func TestLeaseRenewerJoinsCompletions(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.s.completing(func(context.Context, []dedup.Completion) error { time.Sleep(10 * time.Millisecond); return nil })
		const n = 600
		var wg sync.WaitGroup
		began := time.Now()
		for i := range n {
			c, held, stop := r.claim(fmt.Sprintf("%03d", i))
			wg.Go(func() {
				defer stop()
				require.NoError(r, r.k.Complete(held, completion(c)))
			})
		}
		wg.Wait()
		require.LessOrEqual(r, r.s.completes.Load(), int64(4), "one, and three batches")
		require.LessOrEqual(r, time.Since(began), 40*time.Millisecond)
		for i := range n {
			require.Equal(r, dedup.Done, r.verdict(fmt.Sprintf("%03d", i)))
		}
	})
}

// A caller that loses patience fails alone.
func TestLeaseRenewerCompleteHonoursEachContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.s.completing(func(ctx context.Context, _ []dedup.Completion) error {
			select {
			case <-time.After(80 * time.Millisecond): // no slow call, which gets help
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		ids := []string{"leader", "sent", "patient", "unsent"}
		claims := make(map[string]dedup.Claim)
		for _, id := range ids {
			c, _, stop := r.claim(id)
			defer stop()
			claims[id] = c
		}
		errs := make(map[string]chan error)
		start := func(id string, patience time.Duration) {
			errs[id] = make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(r.Context(), patience)
				defer cancel()
				errs[id] <- r.k.Complete(ctx, completion(claims[id]))
			}()
			synctest.Wait()
		}
		start("leader", 8*time.Millisecond)  // starts the first call, and leaves
		start("unsent", 16*time.Millisecond) // leaves while it waits for the second
		start("sent", 120*time.Millisecond)  // leaves during the second
		start("patient", time.Hour)
		for _, id := range []string{"leader", "unsent", "sent"} {
			require.ErrorIs(r, <-errs[id], context.DeadlineExceeded, id)
		}
		require.NoError(r, <-errs["patient"])
		require.EqualValues(r, 2, r.s.completes.Load())
		for id, want := range map[string]dedup.Verdict{
			"leader": dedup.Done, "sent": dedup.Done, "patient": dedup.Done, "unsent": dedup.Busy,
		} {
			require.Equal(r, want, r.verdict(id), id)
		}
	})
}

func TestLeaseRenewerCompleteTellsEachItsOwn(t *testing.T) {
	inBubble(t, func(r *rig) {
		let := make(chan struct{})
		r.s.completing(func(context.Context, []dedup.Completion) error { <-let; return nil })
		first, _, stop := r.claim("first")
		defer stop()
		firstErr := make(chan error, 1)
		go func() { firstErr <- r.k.Complete(r.Context(), completion(first)) }()
		synctest.Wait()
		const n = 10
		errs, held := make([]chan error, n), make([]context.Context, n)
		for i := range n {
			c, h, stop := r.claim(fmt.Sprint(i))
			defer stop()
			if i%3 == 0 { // another caller ends it
				require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: c, Retention: time.Hour}}))
			}
			held[i], errs[i] = h, make(chan error, 1) //nolint:fatcontext // ten contexts side by side, not inside each other
			go func() { errs[i] <- r.k.Complete(r.Context(), completion(c)) }()
		}
		synctest.Wait()
		close(let)
		require.NoError(r, <-firstErr)
		for i := range n {
			err := <-errs[i]
			if i%3 == 0 {
				require.ErrorIs(r, err, dedup.ErrClaimLost)
				isLost(r, held[i])
				continue
			}
			require.NoError(r, err)
			require.NoError(r, held[i].Err())
			require.Equal(r, dedup.Done, r.verdict(fmt.Sprint(i)))
		}
		require.EqualValues(r, 2, r.s.completes.Load())
	})
}

// P-05: two completions of one key, by a late worker of this process and by its successor, are two
// calls.
func TestLeaseRenewerCompleteSplitsEqualKeys(t *testing.T) {
	inBubble(t, func(r *rig) {
		var sizes []int
		r.s.completing(func(_ context.Context, done []dedup.Completion) error {
			time.Sleep(50 * time.Millisecond)
			keys := make(map[dedup.Key]bool)
			for _, d := range done {
				require.False(r, keys[d.Key], "%q twice in one call", d.Key)
				keys[d.Key] = true
			}
			sizes = append(sizes, len(done))
			return nil
		})
		first, _, stop := r.claim("a")
		defer stop()
		zombie := request("b").Held(dedup.NewToken(), dedup.Answer{Fence: 1})
		heir, _, stop := r.claim("b")
		defer stop()
		errs := make(chan error, 3)
		for _, c := range []dedup.Claim{first, zombie, heir} {
			go func() { errs <- r.k.Complete(r.Context(), completion(c)) }()
			synctest.Wait()
		}
		lost := 0
		for range 3 {
			if err := <-errs; err != nil {
				require.ErrorIs(r, err, dedup.ErrClaimLost)
				lost++
			}
		}
		require.Equal(r, 1, lost)
		require.Equal(r, []int{1, 1, 1}, sizes)
		require.Equal(r, dedup.Done, r.verdict("b"))
	})
}

func TestLeaseRenewerKeepsOnAfterAFailedCompletion(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, held, stop := r.claim("e")
		defer stop()
		r.s.completing(func(context.Context, []dedup.Completion) error { return dedup.ErrUnavailable })
		for range 10 {
			require.ErrorIs(r, r.k.Complete(held, completion(c)), dedup.ErrUnavailable)
			time.Sleep(lease / 2)
		}
		require.NoError(r, held.Err())
		r.s.completing(nil)
		require.NoError(r, r.k.Complete(held, completion(c)))
		require.NoError(r, held.Err())
		time.Sleep(time.Millisecond) // one may have been due at the same instant
		before := r.s.renews.Load()
		time.Sleep(2 * lease)
		require.Equal(r, before, r.s.renews.Load(), "what is done needs no renewal")
	})
}

// H-18: the answers to a completion are lost for longer than a lease, and renewals find the record
// done. The renewer repeats the completion until the store answers, and renews nothing after that.
func TestLeaseRenewerCompletesAgainWithoutAnAnswer_H18(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("claim lost %v", lost), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				since := time.Now()
				c, _, stop := r.claim("e")
				stop()
				all := r.k.KeepAll(r.Context(), []dedup.Claim{c}, since)
				defer all.StopAll()
				p := r.s.Store
				r.s.completing(func(ctx context.Context, done []dedup.Completion) error {
					if !lost {
						require.NoError(r, p.Complete(ctx, done))
					}
					return dedup.ErrUnavailable
				})
				require.ErrorIs(r, r.k.Complete(r.Context(), completion(c)), dedup.ErrUnavailable)
				if lost {
					require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: c, Retention: time.Hour}}))
				}
				time.Sleep(2 * lease)
				require.NoError(r, all.Context().Err())
				require.False(r, all.Alive(), "no further work may begin")
				require.False(r, all.Lost(0))
				require.LessOrEqual(r, r.s.completes.Load(), int64(1+2*12), "one for each twelfth of a lease")
				r.s.completing(nil)
				time.Sleep(lease / 6)
				if lost {
					isLost(r, all.Context())
				} else {
					require.NoError(r, all.Context().Err())
				}
				require.Equal(r, lost, all.Lost(0))
				renews, completes := r.s.renews.Load(), r.s.completes.Load()
				time.Sleep(2 * lease)
				require.Equal(r, renews, r.s.renews.Load())
				require.Equal(r, completes, r.s.completes.Load())
			})
		})
	}
}

// the store refuses a completion for its content. That is an answer, so the next renewal finds
// the loss of the claim.
func TestLeaseRenewerRefusedCompletionHidesNoLoss_R06(t *testing.T) {
	inBubble(t, func(r *rig) {
		since := time.Now()
		c, _, stop := r.claim("e")
		stop()
		all := r.k.KeepAll(r.Context(), []dedup.Claim{c}, since)
		defer all.StopAll()
		tooLarge := errors.New("the result is too large")
		r.s.completing(func(context.Context, []dedup.Completion) error { return tooLarge })
		require.ErrorIs(r, r.k.Complete(r.Context(), completion(c)), tooLarge)
		time.Sleep(2 * lease)
		require.NoError(r, all.Context().Err(), "the claim is renewed")
		require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: c, Retention: time.Hour}}))
		time.Sleep(lease)
		isLost(r, all.Context())
	})
}

// A renewal and a completion cross: the renewal finds the record done. That is no loss.
func TestLeaseRenewerCompletionAndRenewalCross(t *testing.T) {
	for _, renewalLast := range []bool{true, false} {
		t.Run(fmt.Sprintf("renewal last %v", renewalLast), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				c, held, stop := r.claim("e")
				defer stop()
				renew, answered := make(chan struct{}), make(chan struct{})
				r.s.renewing(func(context.Context) error { <-renew; return nil })
				time.Sleep(lease/3 + time.Second) // the renewal is under way
				p := r.s.Store
				r.s.completing(func(ctx context.Context, done []dedup.Completion) error {
					err := p.Complete(ctx, done) // it is done on the server, the reply is on its way
					<-answered
					return err
				})
				completed := make(chan error, 1)
				go func() { completed <- r.k.Complete(held, completion(c)) }()
				synctest.Wait()
				if renewalLast {
					close(answered)
					require.NoError(r, <-completed)
					close(renew)
				} else {
					close(renew)
					synctest.Wait()
					require.NoError(r, held.Err())
					close(answered)
					require.NoError(r, <-completed)
				}
				synctest.Wait()
				require.NoError(r, held.Err(), "completed and told that the claim was lost")
			})
		})
	}
}

func TestLeaseRenewerRefusesMistakesAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, held, stop := r.claim("e")
		defer stop()
		require.Error(r, r.k.Complete(held, dedup.Completion{Claim: c}), "no retention")
		require.ErrorIs(r, r.k.Complete(held, dedup.Completion{Retention: 1}), dedup.ErrKey)
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		require.ErrorIs(r, r.k.Complete(ctx, completion(c)), context.Canceled)
		require.Zero(r, r.s.completes.Load())
		require.NoError(r, r.k.Complete(held, completion(c)))
	})
}

// A call that hangs holds up its own completions only. The calls at one time are bounded, also if
// all hang, and the completions behind them wait no longer than the calls.
func TestLeaseRenewerHangingCallHoldsUpItsOwn(t *testing.T) {
	for _, hanging := range []int{1, 3, 4} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var calls, at, most atomic.Int64
				r.s.completing(func(ctx context.Context, _ []dedup.Completion) error {
					most.Store(max(most.Load(), at.Add(1)))
					defer at.Add(-1)
					if calls.Add(1) <= int64(hanging) {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})
				var wg sync.WaitGroup
				began := time.Now()
				complete := func(id string) {
					c, held, stop := r.claim(id)
					wg.Go(func() {
						defer stop()
						took := time.Now()
						err := r.k.Complete(held, completion(c))
						switch {
						case err != nil:
							require.ErrorIs(r, err, context.DeadlineExceeded)
						case hanging < 4:
							require.LessOrEqual(r, time.Since(took), time.Duration(hanging)*100*time.Millisecond, id)
						}
					})
					synctest.Wait()
				}
				for i := range hanging { // each hangs alone
					complete(fmt.Sprintf("hangs %d", i))
					time.Sleep(110 * time.Millisecond)
				}
				for i := range 50 {
					complete(fmt.Sprintf("%02d", i))
					time.Sleep(time.Millisecond)
				}
				wg.Wait()
				require.EqualValues(r, min(hanging+1, 4), most.Load(), "calls at one time")
				require.Less(r, time.Since(began), 2*lease, "the others wait for the end of a call")
				for i := range 50 {
					require.Equal(r, dedup.Done, r.verdict(fmt.Sprintf("%02d", i)))
				}
			})
		})
	}
}
