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
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

const lease = 30 * time.Second

// probe is a store whose calls are counted, and made to fail or to hang.
type probe struct {
	dedup.Store
	renews, completes atomic.Int64
	flying, most      atomic.Int64 // calls of Renew at the same time
	onRenew           atomic.Pointer[func(context.Context) error]
	onComplete        atomic.Pointer[func(context.Context, []dedup.Completion) error]
}

func (p *probe) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	p.renews.Add(1)
	if n := p.flying.Add(1); n > p.most.Load() {
		p.most.Store(n)
	}
	defer p.flying.Add(-1)
	if f := p.onRenew.Load(); f != nil && *f != nil {
		if err := (*f)(ctx); err != nil {
			return err
		}
	}
	return p.Store.Renew(ctx, lease, claims)
}

func (p *probe) Complete(ctx context.Context, done []dedup.Completion) error {
	p.completes.Add(1)
	if f := p.onComplete.Load(); f != nil && *f != nil {
		if err := (*f)(ctx, done); err != nil {
			return err
		}
	}
	return p.Store.Complete(ctx, done)
}

// renewing lets f run before each Renew; nil: nothing.
func (p *probe) renewing(f func(context.Context) error) { p.onRenew.Store(&f) }

func (p *probe) completing(f func(context.Context, []dedup.Completion) error) { p.onComplete.Store(&f) }

func hang(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", dedup.ErrUnavailable, ctx.Err())
}

func refuse(context.Context) error { return dedup.ErrUnavailable }

type rig struct {
	*testing.T
	s *probe
	k *dedup.Keeper
}

// inBubble runs test with a keeper that is closed at its end; goroutines left behind fail it.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &probe{Store: memstore.New()}
		k := dedup.NewKeeper(s, lease)
		defer k.Close()
		test(&rig{T: t, s: s, k: k})
	})
}

func request(id string) dedup.Request {
	return dedup.Request{Key: dedup.Key{Scope: "s", ID: id}, Retention: time.Hour}
}

// claim takes id and keeps it.
func (r *rig) claim(id string) (dedup.Claim, context.Context, func()) {
	r.Helper()
	since, t, req, a := time.Now(), dedup.NewToken(), request(id), make([]dedup.Answer, 1)
	require.NoError(r, r.s.Claim(r.Context(), t, lease, []dedup.Request{req}, a))
	require.True(r, a[0].Verdict.Held(), "%v", a[0].Verdict)
	c := req.Held(t, a[0])
	held, stop := r.k.Keep(r.Context(), c, since)
	return c, held, stop
}

func (r *rig) verdict(id string) dedup.Verdict {
	r.Helper()
	a := make([]dedup.Answer, 1)
	require.NoError(r, r.s.Claim(r.Context(), dedup.NewToken(), lease, []dedup.Request{request(id)}, a))
	return a[0].Verdict
}

func completion(c dedup.Claim) dedup.Completion {
	return dedup.Completion{Claim: c, Retention: time.Hour}
}

func isLost(t testing.TB, held context.Context) {
	t.Helper()
	require.Error(t, held.Err(), "the claim is lost and nobody was told")
	require.ErrorIs(t, context.Cause(held), dedup.ErrClaimLost)
}

// a run of ten minutes under a lease of 30 s.
func TestKeeperKeepsAClaimThroughManyLeases(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, held, stop := r.claim("slow")
		defer stop()
		for range 200 {
			time.Sleep(3 * time.Second)
			require.NoError(r, held.Err())
			require.Equal(r, dedup.Busy, r.verdict("slow"))
		}
		require.InDelta(r, 60, r.s.renews.Load(), 3, "a renewal for each third of the lease")
		require.NoError(r, r.k.Complete(held, completion(c)))
		require.Equal(r, dedup.Done, r.verdict("slow"))
	})
}

func TestKeeperRenewsAThousandClaimsInFewCalls(t *testing.T) {
	inBubble(t, func(r *rig) {
		const n, leases = 1000, 10
		var stops []func()
		var contexts []context.Context
		for i := range n { // spread over a whole lease
			_, held, stop := r.claim(fmt.Sprintf("%04d", i))
			stops, contexts = append(stops, stop), append(contexts, held)
			time.Sleep(lease / n)
		}
		before := r.s.renews.Load()
		time.Sleep(leases * lease)
		calls := r.s.renews.Load() - before
		require.LessOrEqual(r, calls, int64(leases*3*6), "renewals are joined")
		require.GreaterOrEqual(r, calls, int64(leases*3))
		for i := range n {
			require.NoError(r, contexts[i].Err())
			require.Equal(r, dedup.Busy, r.verdict(fmt.Sprintf("%04d", i)))
			stops[i]()
		}
		r.Logf("%d calls for %d renewals", calls, n*leases*3)
	})
}

func TestKeeperCancelsOnlyWhatIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, heldA, stopA := r.claim("a")
		_, heldB, stopB := r.claim("b")
		c, heldC, stopC := r.claim("c")
		defer stopA()
		defer stopB()
		defer stopC()
		for _, gone := range []dedup.Claim{a, c} { // somebody else ends them
			require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: gone, Retention: time.Hour}}))
		}
		time.Sleep(lease/3 + time.Millisecond)
		isLost(r, heldA)
		isLost(r, heldC)
		time.Sleep(5 * lease)
		require.NoError(r, heldB.Err())
		require.Equal(r, dedup.Busy, r.verdict("b"))
		stopA()
		require.ErrorIs(r, context.Cause(heldA), dedup.ErrClaimLost, "the first cause stays")
	})
}

// whoever gives up at the first network error loses claims that are alive.
func TestKeeperSurvivesAnOutageShorterThanTheLease(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{"refused": refuse, "hangs": hang} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				_, held, stop := r.claim("e")
				defer stop()
				time.Sleep(lease / 4)
				r.s.renewing(fault)
				time.Sleep(lease * 55 / 100) // until 0.8 of the lease
				require.NoError(r, held.Err())
				r.s.renewing(nil)
				time.Sleep(3 * lease)
				require.NoError(r, held.Err())
				require.Equal(r, dedup.Busy, r.verdict("e"))
			})
		})
	}
}

// at the deadline of the lease, counted from before the request was sent, and not later.
func TestKeeperLosesAtTheDeadlineAndNotLater(t *testing.T) {
	deaf := make(chan struct{}) // a store that does not even look at its context
	faults := map[string]func(context.Context) error{
		"refused": refuse, "hangs": hang,
		"deaf": func(context.Context) error { <-deaf; return dedup.ErrUnavailable },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				if name == "deaf" {
					deaf = make(chan struct{}) // of this bubble
					defer close(deaf)
				}
				_, held, stop := r.claim("e")
				defer stop()
				time.Sleep(lease/3 + lease/10) // renewed once, sent at a third
				renewed := time.Now().Add(-lease / 10)
				r.s.renewing(fault)
				<-held.Done()
				require.Equal(r, renewed.Add(lease), time.Now())
				isLost(r, held)
			})
		})
	}
}

// The time a slow Claim took is part of the lease.
func TestKeeperCountsFromBeforeTheRequest(t *testing.T) {
	inBubble(t, func(r *rig) {
		since, tok, req, a := time.Now(), dedup.NewToken(), request("e"), make([]dedup.Answer, 1)
		require.NoError(r, r.s.Claim(r.Context(), tok, lease, []dedup.Request{req}, a))
		time.Sleep(lease * 2 / 3) // the answer was long on its way
		r.s.renewing(refuse)
		held, stop := r.k.Keep(r.Context(), req.Held(tok, a[0]), since)
		defer stop()
		<-held.Done()
		require.Equal(r, lease, time.Since(since))

		late, stop := r.k.Keep(r.Context(), req.Held(tok, a[0]), since)
		defer stop()
		isLost(r, late)

		r.s.renewing(nil)
		_, held, stop = r.claim("f") // a time that is still to come makes no lease longer
		stop()
		require.Error(r, held.Err())
		r.s.renewing(refuse)
		now := time.Now()
		held, stop = r.k.Keep(r.Context(), req.Held(tok, a[0]), now.Add(time.Hour))
		defer stop()
		<-held.Done()
		require.Equal(r, lease, time.Since(now))
	})
}

func TestKeeperClose(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, held, stop := r.claim("e")
		defer stop()
		r.s.renewing(hang)
		time.Sleep(lease/3 + time.Second) // a renewal is under way
		began := time.Now()
		r.k.Close()
		r.k.Close()
		require.Zero(r, time.Since(began), "the call is cut short")
		require.ErrorIs(r, context.Cause(held), dedup.ErrKeeperClosed)
		require.NotErrorIs(r, context.Cause(held), dedup.ErrClaimLost)
		r.s.renewing(nil)
		before := r.s.renews.Load()
		after, stop := r.k.Keep(r.Context(), c, time.Now())
		defer stop()
		require.ErrorIs(r, context.Cause(after), dedup.ErrKeeperClosed)
		require.NoError(r, r.k.Complete(r.Context(), completion(c)), "what was finished can be told")
		require.Equal(r, dedup.Done, r.verdict("e"))
		time.Sleep(3 * lease)
		require.Equal(r, before, r.s.renews.Load())
	})
}

// Rule 9: abandoning a run stops its renewal at once.
func TestKeeperStopDuringARenewal(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, held, stop := r.claim("e")
		_, other, stopOther := r.claim("f")
		defer stopOther()
		let := make(chan struct{})
		r.s.renewing(func(context.Context) error { <-let; return nil })
		time.Sleep(lease/3 + time.Second)
		require.EqualValues(r, 1, r.s.flying.Load())
		stop()
		stop()
		require.ErrorIs(r, context.Cause(held), context.Canceled)
		require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: c, Retention: time.Hour}}))
		r.s.renewing(nil)
		close(let) // now it arrives, and finds the claim gone
		synctest.Wait()
		require.NotErrorIs(r, context.Cause(held), dedup.ErrClaimLost)
		require.Equal(r, dedup.Fresh, r.verdict("e"), "given back is given back")
		time.Sleep(3 * lease)
		require.NoError(r, other.Err())
		require.Equal(r, dedup.Uncertain, r.verdict("e"), "nobody renews it")
	})
}

// The goroutine is there while something is kept, and never twice.
func TestKeeperRenewerComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &probe{Store: memstore.New()}
		r := &rig{T: t, s: s, k: dedup.NewKeeper(s, lease)}
		for i := range 5 {
			_, held, stop := r.claim(fmt.Sprint(i))
			time.Sleep(time.Duration(i) * lease)
			require.NoError(r, held.Err())
			stop()
			time.Sleep(lease * 3 / 2) // ends by itself, and is started again
		}
		require.EqualValues(r, 1, s.most.Load())
	}) // without Close: a goroutine that did not end by itself fails the bubble
}

func TestKeeperUnderChurn(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.s.renewing(func(context.Context) error { time.Sleep(lease / 20); return nil })
		var wg sync.WaitGroup
		for w := range 20 {
			wg.Go(func() {
				for i := range 30 {
					id := fmt.Sprintf("%d-%d", w, i)
					c, held, stop := r.claim(id)
					time.Sleep(time.Duration(i*w) * time.Second / 4)
					switch {
					case i%3 == 0:
						require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: c, Retention: time.Hour}}))
					default:
						require.NoError(r, r.k.Complete(held, completion(c)))
						require.NoError(r, held.Err(), "%s: completed, not lost", id)
					}
					stop()
				}
			})
		}
		wg.Wait()
		require.EqualValues(r, 1, r.s.most.Load(), "one renewal at a time")
	})
}

func TestKeeperJoinsCompletions(t *testing.T) {
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
func TestKeeperCompleteHonoursEachContext(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.s.completing(func(ctx context.Context, _ []dedup.Completion) error {
			select {
			case <-time.After(time.Second):
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
		start("leader", 100*time.Millisecond) // starts the first call, and leaves
		start("unsent", 200*time.Millisecond) // leaves while it waits for the second
		start("sent", 1500*time.Millisecond)  // leaves during the second
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

func TestKeeperCompleteTellsEachItsOwn(t *testing.T) {
	inBubble(t, func(r *rig) {
		let := make(chan struct{})
		r.s.completing(func(context.Context, []dedup.Completion) error { <-let; return nil })
		first, _, stop := r.claim("first")
		defer stop()
		go func() { require.NoError(r, r.k.Complete(r.Context(), completion(first))) }()
		synctest.Wait()
		const n = 10
		errs, held := make([]chan error, n), make([]context.Context, n)
		for i := range n {
			c, h, stop := r.claim(fmt.Sprint(i))
			defer stop()
			if i%3 == 0 { // somebody else ends it
				require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: c, Retention: time.Hour}}))
			}
			held[i], errs[i] = h, make(chan error, 1)
			go func() { errs[i] <- r.k.Complete(r.Context(), completion(c)) }()
		}
		synctest.Wait()
		close(let)
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

// P-05: two completions of one key, by a zombie of this process and by its heir, are two calls.
func TestKeeperCompleteSplitsEqualKeys(t *testing.T) {
	inBubble(t, func(r *rig) {
		var sizes []int
		r.s.completing(func(_ context.Context, done []dedup.Completion) error {
			time.Sleep(time.Second)
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

func TestKeeperKeepsOnAfterAFailedCompletion(t *testing.T) {
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

// A renewal and a completion cross: the renewal finds the record done. That is no loss.
func TestKeeperCompletionAndRenewalCross(t *testing.T) {
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

func TestKeeperRefusesMistakesAlone(t *testing.T) {
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

// A cancelled context ends the run, not the claim: what was told to stop may need time.
func TestKeeperRenewsAfterItsContextEnded(t *testing.T) {
	inBubble(t, func(r *rig) {
		since, tok, req, a := time.Now(), dedup.NewToken(), request("e"), make([]dedup.Answer, 1)
		require.NoError(r, r.s.Claim(r.Context(), tok, lease, []dedup.Request{req}, a))
		why := errors.New("revoked")
		ctx, cancel := context.WithCancelCause(r.Context())
		held, stop := r.k.Keep(ctx, req.Held(tok, a[0]), since)
		cancel(why)
		require.ErrorIs(r, context.Cause(held), why)
		time.Sleep(3 * lease)
		require.Equal(r, dedup.Busy, r.verdict("e"))
		stop()
		time.Sleep(2 * lease)
		require.Equal(r, dedup.Uncertain, r.verdict("e"))
	})
}

func TestKeeperLease(t *testing.T) {
	require.Equal(t, 30*time.Second, dedup.NewKeeper(memstore.New(), 0).Lease())
	require.Equal(t, dedup.DefaultLease, dedup.NewKeeper(memstore.New(), -1).Lease())
	require.Equal(t, time.Minute, dedup.NewKeeper(memstore.New(), time.Minute).Lease())
}
