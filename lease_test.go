package idem_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// This file is about leases that end before a handler begins: it must never begin then, since
// another worker may have taken over (rule 3).

// leased runs fn for each way in which a handler gets claimed events. deliver delivers two events.
// dead counts the calls of the handler with a context that had ended, and ran all calls.
func leased(t *testing.T, fn func(t *testing.T, b *bench, deliver func() (int, error), dead, ran *atomic.Int32)) {
	t.Helper()
	for _, way := range []string{"one by one", "group", "batch handler"} {
		t.Run(way, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.cfg.StoreTimeout = time.Minute // so that answers can come too late
				var dead, ran atomic.Int32
				note := func(ctx context.Context) {
					ran.Add(1)
					if ctx.Err() != nil {
						dead.Add(1)
					}
				}
				if way == "batch handler" {
					b.onBatch(func(ctx context.Context, _ []idem.Event[payload]) error { note(ctx); return ctx.Err() })
				} else {
					b.on(func(ctx context.Context, _ idem.Event[payload]) error { note(ctx); return ctx.Err() })
				}
				fn(t, b, func() (settled int, err error) {
					if way != "one by one" {
						return b.p.HandleBatch(t.Context(), series(2))
					}
					for _, m := range series(2) {
						if err := b.p.Handle(t.Context(), m); err != nil {
							return settled, err
						}
						settled++
					}
					return settled, nil
				}, &dead, &ran)
			})
		})
	}
}

// The store grants the claim at once, and its answer arrives after the lease is over.
func TestLease_LateAnswer(t *testing.T) {
	leased(t, func(t *testing.T, b *bench, deliver func() (int, error), dead, _ *atomic.Int32) {
		late := times(1, errBoom)
		b.store.claimLate = func() error {
			if late() != nil {
				time.Sleep(11 * time.Second) // the lease is 10 s
			}
			return nil
		}
		b.start()
		settled, err := deliver()
		require.NoError(t, err)
		require.Equal(t, 2, settled)
		require.Zero(t, dead.Load(), "begun under a lease that was over: %v", b.all())
		require.Zero(t, b.count("claim: uncertain"), "nothing had run: %v", b.all())
		require.Contains(t, b.log.String(), "longer than the lease")
	})
}

// Another worker takes over while the answer is on its way, and handles the events. No event is
// left to be run.
func TestLease_LateAnswerAndAnHeir(t *testing.T) {
	leased(t, func(t *testing.T, b *bench, deliver func() (int, error), _, ran *atomic.Int32) {
		var heir atomic.Bool
		b.store.claimLate = func() error {
			if heir.CompareAndSwap(false, true) {
				time.Sleep(11 * time.Second)
				for _, id := range []string{"e000", "e001"} {
					handledElsewhere(t, b, id)
				}
			}
			return nil
		}
		b.start()
		settled, err := deliver()
		require.NoError(t, err)
		require.Equal(t, 2, settled)
		require.Zero(t, ran.Load(), "handled twice: %v", b.all())
	})
}

func handledElsewhere(t *testing.T, b *bench, id string) {
	t.Helper()
	token := dedup.NewToken()
	var a [1]dedup.Answer
	req := dedup.Request{Key: dedup.Key{Scope: "g", Type: "paid", ID: id}, Retention: time.Hour, Origin: dedup.Origin{Topic: "elsewhere"}}
	require.NoError(t, b.store.Store.Claim(t.Context(), token, time.Minute, []dedup.Request{req}, a[:]))
	require.True(t, a[0].Verdict.Held(), a[0].Verdict.String())
	require.NoError(t, b.store.Store.Complete(t.Context(), []dedup.Completion{{Claim: req.Held(token, a[0]), Retention: time.Hour}}))
}

// A store that always answers too late is asked again with pauses, is told of, and ends the call of
// a foreign loop.
func TestLease_AlwaysLate(t *testing.T) {
	leased(t, func(t *testing.T, b *bench, deliver func() (int, error), _, ran *atomic.Int32) {
		b.cfg.BusyWait = 30 * time.Second
		b.store.claimLate = func() error { time.Sleep(11 * time.Second); return nil }
		b.start()
		_, err := deliver()
		var wait *idem.WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.ErrorContains(t, err, "longer than the lease")
		require.Zero(t, ran.Load())
		require.LessOrEqual(t, b.store.claims, 100, "with pauses")
		require.Positive(t, b.count("release: unstarted"), "another worker need not wait for the lease")
		require.Equal(t, 1, strings.Count(b.log.String(), "unavailable, pausing"), b.log.String())
	})
}

// pause is an observer that stands for a process that is stopped just after an answer has come.
type pause struct{ left atomic.Int32 }

func (p *pause) ObserveStoreCall(_ context.Context, e observe.StoreCallEvent) {
	if e.Verb == observe.VerbClaim && p.left.Add(-1) >= 0 {
		time.Sleep(11 * time.Second)
	}
}

// The answer comes in time, and the process is stopped between the answer and the run.
func TestLease_PausedBeforeTheRun(t *testing.T) {
	for _, pauses := range []int32{1, 5} {
		leased(t, func(t *testing.T, b *bench, deliver func() (int, error), dead, _ *atomic.Int32) {
			p := &pause{}
			p.left.Store(pauses)
			b.cfg.Observers = []observe.Observer{p}
			b.start()
			settled, err := deliver()
			require.NoError(t, err)
			require.Equal(t, 2, settled)
			require.Zero(t, dead.Load(), "begun under a lease that was over: %v", b.all())
			require.Zero(t, b.count("claim: uncertain"), "nothing had run: %v", b.all())
			require.Contains(t, b.log.String(), "lease was over before the handler began")
		})
	}
}

// A process that is stopped over and over gets nowhere, and says so: it must not spin.
func TestLease_AlwaysPaused(t *testing.T) {
	leased(t, func(t *testing.T, b *bench, deliver func() (int, error), _, ran *atomic.Int32) {
		p := &pause{}
		p.left.Store(1 << 20)
		b.cfg.Observers = []observe.Observer{p}
		b.cfg.BusyWait = 30 * time.Second
		b.start()
		_, err := deliver()
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.Zero(t, ran.Load())
		require.LessOrEqual(t, b.store.claims, 100, "with pauses")
	})
}

// The lease counts from when the claim was sent. The answer takes most of it, and no renewal
// succeeds.
func TestLease_CountsFromTheRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		late := times(1, errBoom)
		b.store.claimLate = func() error {
			if late() != nil {
				time.Sleep(9 * time.Second)
			}
			return nil
		}
		b.cfg.StoreTimeout = time.Minute
		var down atomic.Bool
		down.Store(true)
		b.store.renewErr = func() error {
			if down.Load() {
				return dedup.ErrUnavailable
			}
			return nil
		}
		began := time.Now()
		var cut time.Duration
		b.on(func(ctx context.Context, _ idem.Event[payload]) error {
			if !down.Load() {
				return nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			cut = time.Since(began)
			down.Store(false)
			return ctx.Err()
		})
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		synctest.Wait()
		require.Equal(t, 10*time.Second, cut, "the lease is 10 s and began with the request")
	})
}
