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
	"github.com/idem-go/idem/internal/faketime"
	"github.com/stretchr/testify/require"
)

const lease = 30 * time.Second

// probe is a store that counts calls, and lets them fail or hang.
type probe struct {
	dedup.Store
	renews, completes atomic.Int64
	flying, most      atomic.Int64 // calls of Renew at the same time
	wrong             atomic.Value // a string
	onRenew           atomic.Pointer[func(context.Context) error]
	onComplete        atomic.Pointer[func(context.Context, []dedup.Completion) error]
}

func (p *probe) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	p.renews.Add(1)
	keys := make([]dedup.Key, len(claims))
	for i, c := range claims {
		keys[i] = c.Key
	}
	p.ascend(keys, 512)
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
	keys := make([]dedup.Key, len(done))
	for i, d := range done {
		keys[i] = d.Key
	}
	p.ascend(keys, 256)
	if f := p.onComplete.Load(); f != nil && *f != nil {
		if err := (*f)(ctx, done); err != nil {
			return err
		}
	}
	return p.Store.Complete(ctx, done)
}

// ascend notes calls that a store need not be able to serve (P-04, P-05), and those that are too big.
func (p *probe) ascend(keys []dedup.Key, most int) {
	for i := range keys {
		if i > 0 && keys[i-1].Compare(keys[i]) >= 0 {
			p.wrong.Store(fmt.Sprintf("%q after %q", keys[i], keys[i-1]))
		}
	}
	if len(keys) == 0 || len(keys) > most {
		p.wrong.Store(fmt.Sprintf("%d keys", len(keys)))
	}
}

// renewing lets f run before each Renew; nil: no function.
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
	k *dedup.LeaseRenewer
}

// inBubble runs test with a lease renewer that is closed at its end; goroutines left behind fail it.
func inBubble(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s := &probe{Store: memstore.New()}
		k := dedup.NewLeaseRenewer(s, lease)
		defer k.Close()
		test(&rig{T: t, s: s, k: k})
		require.Nil(t, s.wrong.Load(), "a call that no store has to serve")
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
func TestLeaseRenewerKeepsAClaimThroughManyLeases(t *testing.T) {
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

func TestLeaseRenewerRenewsAThousandClaimsInFewCalls(t *testing.T) {
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

func TestLeaseRenewerCancelsOnlyWhatIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		a, heldA, stopA := r.claim("a")
		_, heldB, stopB := r.claim("b")
		c, heldC, stopC := r.claim("c")
		defer stopA()
		defer stopB()
		defer stopC()
		for _, gone := range []dedup.Claim{a, c} { // another caller ends them
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

// Claims that are kept together: the loss of one ends all, and Stop ends one. After a pause, Alive
// reports a loss by the clock before the renewer runs (K-12, rule 49).
func TestLeaseRenewerKeepsManyTogether_K12(t *testing.T) {
	inBubble(t, func(r *rig) {
		since := time.Now()
		var claims []dedup.Claim
		for _, id := range []string{"a", "b", "c"} {
			c, _, stop := r.claim(id)
			stop()
			claims = append(claims, c)
		}
		all := r.k.KeepAll(r.Context(), claims, since)
		defer all.StopAll()
		time.Sleep(3 * lease)
		require.True(r, all.Alive())
		require.Equal(r, dedup.Busy, r.verdict("b"))
		all.Stop(1)
		time.Sleep(2 * lease)
		require.Equal(r, dedup.Uncertain, r.verdict("b"), "nobody renews it any longer")
		require.NoError(r, all.Context().Err())
		require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: claims[2], Retention: time.Hour}}))
		time.Sleep(lease)
		isLost(r, all.Context())
		require.False(r, all.Alive())

		old := r.k.KeepAll(r.Context(), claims[:1], time.Now().Add(-lease))
		defer old.StopAll()
		require.False(r, old.Alive())
	})
}

// a renewer that gave up at the first network error would lose claims that are alive.
func TestLeaseRenewerSurvivesAnOutageShorterThanTheLease(t *testing.T) {
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
func TestLeaseRenewerLosesAtTheDeadlineAndNotLater(t *testing.T) {
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

// The time that a slow renewal took is part of the lease.
func TestLeaseRenewerCountsARenewalFromBeforeItsRequest(t *testing.T) {
	inBubble(t, func(r *rig) {
		renewals := 0
		r.s.renewing(func(ctx context.Context) error {
			if renewals++; renewals > 1 {
				return refuse(ctx)
			}
			time.Sleep(lease / 10)
			return nil
		})
		began := time.Now()
		_, held, stop := r.claim("e")
		defer stop()
		<-held.Done()
		require.Equal(r, lease/3+lease, time.Since(began))
	})
}

// The time a slow Claim took is part of the lease.
func TestLeaseRenewerCountsFromBeforeTheRequest(t *testing.T) {
	inBubble(t, func(r *rig) {
		since, tok, req, a := time.Now(), dedup.NewToken(), request("e"), make([]dedup.Answer, 1)
		require.NoError(r, r.s.Claim(r.Context(), tok, lease, []dedup.Request{req}, a))
		time.Sleep(lease*2/3 + 777*time.Millisecond) // the answer was long on its way
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

// The time a slow Renew took is part of the lease that it asked for.
func TestLeaseRenewerCountsARenewalFromBeforeItWasSent(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, held, stop := r.claim("e")
		defer stop()
		r.s.renewing(func(context.Context) error { time.Sleep(4 * time.Second); return nil })
		time.Sleep(lease/3 + 5*time.Second) // sent at a third, answered four seconds later
		r.s.renewing(refuse)
		began := time.Now().Add(-5 * time.Second)
		<-held.Done()
		require.Equal(r, lease, time.Since(began))
	})
}

// An idle renewer wakes for a claim that is due before its next look.
func TestLeaseRenewerWakesTheRenewer(t *testing.T) {
	inBubble(t, func(r *rig) {
		_, _, stop := r.claim("e")
		time.Sleep(time.Second)
		stop()
		time.Sleep(lease / 6) // it has seen that no claim is kept and will look again in a lease
		require.Zero(r, r.s.renews.Load())
		_, _, stop = r.claim("f")
		defer stop()
		time.Sleep(lease/3 + time.Millisecond)
		require.EqualValues(r, 1, r.s.renews.Load())
	})
}

// P-05: a process that took a key over from itself keeps it twice. The two are never in one call.
func TestLeaseRenewerRenewsEqualKeysInTwoCalls(t *testing.T) {
	inBubble(t, func(r *rig) {
		since, zombie := time.Now(), request("e").Held(dedup.NewToken(), dedup.Answer{Fence: 1})
		old, stopOld := r.k.Keep(r.Context(), zombie, since)
		defer stopOld()
		_, held, stop := r.claim("e")
		defer stop()
		time.Sleep(lease/3 + time.Second)
		require.EqualValues(r, 2, r.s.renews.Load())
		isLost(r, old)
		time.Sleep(2 * lease)
		require.NoError(r, held.Err())
	})
}

func TestLeaseRenewerClose(t *testing.T) {
	inBubble(t, func(r *rig) {
		c, held, stop := r.claim("e")
		defer stop()
		r.s.renewing(hang)
		time.Sleep(lease/3 + time.Second) // a renewal is under way
		began := time.Now()
		r.k.Close()
		r.k.Close()
		require.Zero(r, time.Since(began), "the call is cut short")
		require.ErrorIs(r, context.Cause(held), dedup.ErrLeaseRenewerClosed)
		require.NotErrorIs(r, context.Cause(held), dedup.ErrClaimLost)
		r.s.renewing(nil)
		before := r.s.renews.Load()
		after, stop := r.k.Keep(r.Context(), c, time.Now())
		defer stop()
		require.ErrorIs(r, context.Cause(after), dedup.ErrLeaseRenewerClosed)
		require.NoError(r, r.k.Complete(r.Context(), completion(c)), "what was finished can be told")
		require.Equal(r, dedup.Done, r.verdict("e"))
		time.Sleep(3 * lease)
		require.Equal(r, before, r.s.renews.Load())
	})
}

// Rule 9: abandoning a run stops its renewal at once.
func TestLeaseRenewerStopDuringARenewal(t *testing.T) {
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
func TestLeaseRenewerRenewerComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &probe{Store: memstore.New()}
		r := &rig{T: t, s: s, k: dedup.NewLeaseRenewer(s, lease)}
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

func TestLeaseRenewerUnderChurn(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.s.renewing(func(context.Context) error { time.Sleep(lease / 20); return nil })
		var wg sync.WaitGroup
		for w := range 20 {
			wg.Go(func() {
				for i := range 30 {
					id := fmt.Sprintf("%d-%d", w, i)
					c, held, stop := r.claim(id)
					time.Sleep(time.Duration(i*w) * time.Second / 4)
					if i%3 == 0 {
						require.NoError(r, r.s.Release(r.Context(), []dedup.Release{{Claim: c, Retention: time.Hour}}))
					} else {
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

// A cancelled context ends the run, not the claim: the run may need time to stop.
func TestLeaseRenewerRenewsAfterItsContextEnded(t *testing.T) {
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

func TestLeaseRenewerLease(t *testing.T) {
	require.Equal(t, 30*time.Second, dedup.NewLeaseRenewer(memstore.New(), 0).Lease())
	require.Equal(t, dedup.DefaultLease, dedup.NewLeaseRenewer(memstore.New(), -1).Lease())
	require.Equal(t, time.Minute, dedup.NewLeaseRenewer(memstore.New(), time.Minute).Lease())
}
