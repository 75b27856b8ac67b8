package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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

// sharer is a store that shares and counts calls of Claim, and lets them fail or hang.
type sharer struct {
	*probe
	calls, at, most atomic.Int64
	onClaim         atomic.Pointer[func(context.Context, []dedup.Request) error]
}

func (s *sharer) SharedCalls() int { return 1 }

func (s *sharer) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer) error {
	s.calls.Add(1)
	s.most.Store(max(s.most.Load(), s.at.Add(1)))
	defer s.at.Add(-1)
	keys := make([]dedup.Key, len(reqs))
	for i, r := range reqs {
		keys[i] = r.Key
	}
	s.ascend(keys, 256)
	if f := s.onClaim.Load(); f != nil {
		if err := (*f)(ctx, reqs); err != nil {
			return err
		}
	}
	return s.probe.Store.Claim(ctx, t, lease, reqs, answers)
}

func (s *sharer) claiming(f func(context.Context, []dedup.Request) error) { s.onClaim.Store(&f) }

type sharedRig struct {
	*testing.T
	s *sharer
	k *dedup.LeaseRenewer
}

func inSharedBubble(t *testing.T, test func(r *sharedRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer faketime.Bound(t.Name())()
		s := &sharer{probe: &probe{Store: memstore.New()}}
		k := dedup.NewLeaseRenewer(s, lease)
		defer k.Close()
		test(&sharedRig{T: t, s: s, k: k})
		require.Nil(t, s.wrong.Load(), "a call that no store has to serve")
	})
}

// asked is a call of Claim and its outcome.
type asked struct {
	token   dedup.Token
	reqs    []dedup.Request
	answers []dedup.Answer
	err     error
	took    time.Duration
	over    chan struct{}
}

// ask claims ids in a goroutine, and returns when that goroutine waits or has ended.
func (r *sharedRig) ask(ctx context.Context, ids ...string) *asked {
	a := &asked{token: dedup.NewToken(), answers: make([]dedup.Answer, len(ids)), over: make(chan struct{})}
	for _, id := range ids {
		a.reqs = append(a.reqs, request(id))
	}
	began := time.Now()
	go func() {
		defer close(a.over)
		a.err = r.k.Claim(ctx, a.token, a.reqs, a.answers)
		a.took = time.Since(began)
	}()
	synctest.Wait()
	return a
}

// granted requires that all claims are granted under the caller's own token.
func (r *sharedRig) granted(a *asked) {
	r.Helper()
	<-a.over
	require.NoError(r, a.err)
	for i, q := range a.reqs {
		require.Equal(r, dedup.Fresh, a.answers[i].Verdict, "%q", q.Key)
		require.NoError(r, r.s.Complete(r.Context(), []dedup.Completion{completion(q.Held(a.token, a.answers[i]))}))
	}
}

// first claims one event in a call that hangs until end is closed, so that others queue.
func (r *sharedRig) first() (a *asked, end chan struct{}) {
	end = make(chan struct{})
	var once atomic.Bool
	r.s.claiming(func(ctx context.Context, _ []dedup.Request) error {
		if once.CompareAndSwap(false, true) {
			<-end
		}
		return nil
	})
	return r.ask(r.Context(), "first"), end
}

func TestLeaseRenewerClaimSharesCalls(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		first, end := r.first()
		var others []*asked
		for i := range 300 {
			others = append(others, r.ask(r.Context(), fmt.Sprintf("%03d a", 300-i), fmt.Sprintf("%03d b", i+400)))
		}
		require.EqualValues(r, 1, r.s.calls.Load(), "one at a time")
		close(end)
		r.granted(first)
		for _, o := range others {
			r.granted(o)
		}
		require.EqualValues(r, 1+3, r.s.calls.Load(), "600 requests in calls of 256")
		require.EqualValues(r, 1, r.s.most.Load())
	})
}

// A single caller asks in its own goroutine, so that no other one has to be scheduled.
func TestLeaseRenewerClaimOfOneCallerIsDirect(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		before := runtime.NumGoroutine()
		r.s.claiming(func(context.Context, []dedup.Request) error {
			require.Equal(r, before, runtime.NumGoroutine())
			return nil
		})
		answers := make([]dedup.Answer, 1)
		for i := range 3 {
			require.NoError(r, r.k.Claim(r.Context(), dedup.NewToken(), []dedup.Request{request(fmt.Sprint(i))}, answers))
			require.Equal(r, dedup.Fresh, answers[0].Verdict)
		}
	})
}

// P-05: a key that two callers ask for is in two calls. Only the first caller gets it.
func TestLeaseRenewerClaimSplitsEqualKeys(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		first, end := r.first()
		one, two := r.ask(r.Context(), "a", "b"), r.ask(r.Context(), "b", "c")
		close(end)
		<-two.over
		require.NoError(r, two.err)
		require.Equal(r, dedup.Busy, two.answers[0].Verdict)
		require.Equal(r, dedup.Fresh, two.answers[1].Verdict)
		r.granted(one)
		r.granted(first)
		require.EqualValues(r, 3, r.s.calls.Load())
	})
}

// The requests of a caller that leaves the queue are not sent. A caller with requests under way
// waits for the end of the call, since the claim may be granted until then.
func TestLeaseRenewerClaimHonoursEachContext(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		first, end := r.first()
		ctx, cancel := context.WithCancel(r.Context())
		unsent := r.ask(ctx, "unsent")
		cancel()
		<-unsent.over
		require.ErrorIs(r, unsent.err, context.Canceled)

		underway := make(chan struct{})
		r.s.claiming(func(ctx context.Context, _ []dedup.Request) error {
			select {
			case <-underway:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		ctx, cancel = context.WithCancel(r.Context())
		leaves, stays := r.ask(ctx, "leaves"), r.ask(r.Context(), "stays")
		close(end)
		synctest.Wait()
		cancel()
		synctest.Wait()
		select {
		case <-leaves.over:
			require.Fail(r, "returned before the call")
		default:
		}
		close(underway)
		r.granted(stays)
		<-leaves.over
		r.granted(first)
		require.EqualValues(r, 2, r.s.calls.Load())
		a := make([]dedup.Answer, 1)
		require.NoError(r, r.k.Claim(r.Context(), dedup.NewToken(), []dedup.Request{request("unsent")}, a))
		require.Equal(r, dedup.Fresh, a[0].Verdict, "was never asked for")
	})
}

// A call that no caller waits for any longer is cancelled.
func TestLeaseRenewerClaimWithoutCallersIsCancelled(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		first, end := r.first()
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		one, two := r.ask(ctx, "1"), r.ask(ctx, "2")
		r.s.claiming(func(ctx context.Context, _ []dedup.Request) error { <-ctx.Done(); return ctx.Err() })
		close(end)
		for _, a := range []*asked{one, two} {
			<-a.over
			require.Error(r, a.err)
			require.Equal(r, time.Second, a.took)
		}
		r.granted(first)
	})
}

// The requests of one caller cannot fail the others.
func TestLeaseRenewerClaimIsolatesMistakes(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		first, end := r.first()
		one, bad, two := r.ask(r.Context(), "1"), r.ask(r.Context(), "bad"), r.ask(r.Context(), "2")
		mistake := errors.New("refused")
		r.s.claiming(func(_ context.Context, reqs []dedup.Request) error {
			if slices.ContainsFunc(reqs, func(q dedup.Request) bool { return q.Key.ID == "bad" }) {
				return mistake
			}
			return nil
		})
		close(end)
		<-bad.over
		require.ErrorIs(r, bad.err, mistake)
		r.granted(one)
		r.granted(two)
		r.granted(first)

		invalid := make([]dedup.Answer, 1)
		require.ErrorIs(r, r.k.Claim(r.Context(), dedup.NewToken(), []dedup.Request{{Retention: 1}}, invalid), dedup.ErrKey)
	})
}

// While the store is down, one call is one error for all of its callers.
func TestLeaseRenewerClaimSharesAnOutage(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		first, end := r.first()
		var others []*asked
		for i := range 50 {
			others = append(others, r.ask(r.Context(), fmt.Sprint(i)))
		}
		r.s.claiming(func(context.Context, []dedup.Request) error { return dedup.ErrUnavailable })
		close(end)
		for _, o := range others {
			<-o.over
			require.ErrorIs(r, o.err, dedup.ErrUnavailable)
		}
		r.granted(first)
		require.EqualValues(r, 2, r.s.calls.Load())
	})
}

// A panic of the store, or the end of its goroutine, reaches every caller, and others come after.
func TestLeaseRenewerClaimAfterAPanic(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("store") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inSharedBubble(t, func(r *sharedRig) {
				first, let := r.first()
				recovered, errs := make(chan any, 2), make(chan error, 2)
				for i := range 2 {
					go func() {
						defer func() { recovered <- recover() }()
						a := make([]dedup.Answer, 1)
						errs <- r.k.Claim(r.Context(), dedup.NewToken(), []dedup.Request{request(fmt.Sprint(i))}, a)
					}()
				}
				synctest.Wait()
				var once sync.Once
				r.s.claiming(func(context.Context, []dedup.Request) error { once.Do(end); return nil })
				close(let)
				for range 2 {
					if name == "panic" {
						require.Equal(r, "store", <-recovered)
					} else {
						require.Nil(r, <-recovered)
						require.NoError(r, <-errs, "asked again alone")
					}
				}
				r.granted(first)
				r.granted(r.ask(r.Context(), "later"))
			})
		})
	}
}

// A call that hangs holds up its own callers only. If all senders hang, callers ask alone at once.
func TestLeaseRenewerHangingClaimHoldsUpItsOwn(t *testing.T) {
	for _, hanging := range []int{1, 3, 4} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			inSharedBubble(t, func(r *sharedRig) {
				hang := make(chan struct{})
				r.s.claiming(func(_ context.Context, reqs []dedup.Request) error {
					if reqs[0].Key.ID[0] == 'h' {
						<-hang
					}
					return nil
				})
				var hung []*asked
				for i := range hanging {
					hung = append(hung, r.ask(r.Context(), fmt.Sprintf("h %d", i)))
				}
				behind := r.ask(r.Context(), "behind") // queued when the last sender begins to hang
				r.granted(behind)
				require.LessOrEqual(r, behind.took, time.Duration(hanging)*100*time.Millisecond)
				for i := range 20 {
					a := r.ask(r.Context(), fmt.Sprint(i))
					r.granted(a)
					require.Zero(r, a.took)
				}
				close(hang)
				for _, a := range hung {
					r.granted(a)
				}
			})
		})
	}
}

// Close waits for the shared calls. Callers that come later are served.
func TestLeaseRenewerCloseServesTheQueue(t *testing.T) {
	inSharedBubble(t, func(r *sharedRig) {
		first, end := r.first()
		queued := r.ask(r.Context(), "queued")
		r.k.Close()
		r.granted(r.ask(r.Context(), "after"))
		close(end)
		r.granted(first)
		r.granted(queued)
	})
}

// A caller whose context ends when the renewer gives the queue back has no answer, and no success.
func TestLeaseRenewerClaimUnsentIsNoSuccess(t *testing.T) {
	for range 200 { // the caller may also leave the queue first
		inSharedBubble(t, func(r *sharedRig) {
			end := make(chan struct{})
			ctx, cancel := context.WithCancel(r.Context())
			r.s.claiming(func(context.Context, []dedup.Request) error { <-end; cancel(); return nil })
			first := r.ask(r.Context(), "first")
			queued := r.ask(ctx, "queued")
			r.k.Close() // the end of the first call gives the queue back
			close(end)
			<-queued.over
			if queued.err == nil {
				require.Equal(r, dedup.Fresh, queued.answers[0].Verdict, "success without an answer")
			} else {
				require.ErrorIs(r, queued.err, context.Canceled)
			}
			r.granted(first)
		})
	}
}
