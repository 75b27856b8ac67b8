package idem_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// mortal is the store as seen by a process that can die.
type mortal struct {
	*spy
	dead atomic.Bool
}

func (m *mortal) gone() error {
	if m.dead.Load() {
		return dedup.ErrUnavailable
	}
	return nil
}

func (m *mortal) Claim(ctx context.Context, t dedup.Token, l time.Duration, r []dedup.Request, a []dedup.Answer) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.spy.Claim(ctx, t, l, r, a)
}
func (m *mortal) Renew(ctx context.Context, l time.Duration, c []dedup.Claim) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.spy.Renew(ctx, l, c)
}
func (m *mortal) Complete(ctx context.Context, c []dedup.Completion) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.spy.Complete(ctx, c)
}
func (m *mortal) Release(ctx context.Context, c []dedup.Release) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.spy.Release(ctx, c)
}

// Rule 18: events that were claimed together and lost their holder run one by one. So the event
// that kills is found, and the others are not blamed.
func TestBatch_CrashLoopBlamesTheOneThatKills_Rule18(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var bg sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		life := func(n int) {
			m := &mortal{spy: b.store}
			r := idem.NewRouter()
			idem.On(r, "paid", func(_ context.Context, e idem.Event[payload]) error {
				if e.ID == "e000" {
					m.dead.Store(true) // kill -9
					<-ctx.Done()
				}
				return nil
			})
			cfg := b.cfg
			cfg.Store = m
			p, err := idem.NewProcessor(r, cfg)
			require.NoError(t, err)
			bg.Go(func() { _, _ = p.HandleBatch(ctx, series(6)); p.Close() })
			time.Sleep(30 * time.Second)
		}
		for i := range 5 {
			life(i)
		}
		var got []string
		for _, l := range b.sent.deadLetters() {
			got = append(got, headerOf(l, deadletter.HeaderEventID)+" "+headerOf(l, deadletter.HeaderErrorClass))
		}
		stop()
		time.Sleep(time.Minute)
		bg.Wait()
		require.Equal(t, []string{"e000 crash-loop"}, got)
	})
}

// Rule 25: a turn that a duplicate gives back must not be given out twice, and not be lost.
func TestBatch_RateLimitWithDuplicatesInManyLanes_Rule25(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		var runs []time.Time
		on := func(context.Context, idem.Event[payload]) error {
			mu.Lock()
			runs = append(runs, time.Now())
			mu.Unlock()
			return nil
		}
		idem.On(b.router, "paid", on, idem.RateLimit(10, time.Second))
		p := b.start()
		for i := range 16 { // handled before
			require.NoError(t, p.Handle(t.Context(), message(fmt.Sprintf("d%d", i), int64(i))))
		}
		runs = nil
		time.Sleep(time.Minute)
		began := time.Now()
		var lanes sync.WaitGroup
		for lane := range 16 {
			lanes.Go(func() {
				require.NoError(t, p.Handle(t.Context(), message(fmt.Sprintf("d%d", lane), int64(lane))))
				require.NoError(t, p.Handle(t.Context(), message(fmt.Sprintf("f%d", lane), int64(lane))))
			})
		}
		lanes.Wait()
		require.Len(t, runs, 16)
		require.Less(t, time.Since(began), 1600*time.Millisecond, "duplicates cost no turn")
		most := 0
		for i := range runs {
			n := 0
			for j := range runs {
				if d := runs[j].Sub(runs[i]); d >= 0 && d < time.Second {
					n++
				}
			}
			most = max(most, n)
		}
		require.LessOrEqual(t, most, 10, "runs within one second")
	})
}

// A BatchError in one branch of a joined error, or under a mark, does not speak for the whole.
func TestBatch_BatchErrorBesideAnotherError(t *testing.T) {
	for _, name := range []string{"joined", "marked", "on"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				calls := 0
				fail := func() error {
					if calls++; calls > 1 {
						return nil
					}
					switch name {
					case "joined":
						return errors.Join(errBoom, idem.BatchError{})
					case "marked":
						return idem.Unavailable(idem.NotApplied(fmt.Errorf("%w: %w", errBoom, idem.BatchError{0: errBoom})))
					}
					return errors.Join(errBoom, idem.BatchError{})
				}
				if name == "on" {
					b.on(func(context.Context, idem.Event[payload]) error { return fail() })
				} else {
					b.onBatch(func(context.Context, []idem.Event[payload]) error { return fail() })
				}
				p := b.start()
				_, err := p.HandleBatch(t.Context(), series(3))
				require.NoError(t, err)
				t.Log(b.all())
				require.Greater(t, calls, 1, "the handler failed and is not called again")
				if name == "marked" {
					require.Equal(t, 1, b.count("batch [e001 e002]")+b.count("batch [e001]"))
				}
			})
		})
	}
}

// At most once: a claimed event runs at once, and not after the handlers of other events.
func TestBatch_AtMostOnceWaitsForNoOtherHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		idem.On(b.router, "A", func(context.Context, idem.Event[payload]) error { return nil })
		idem.OnBatch(b.router, "B", func(context.Context, []idem.Event[payload]) error { return nil }, idem.WhenUncertain(idem.DeadLetterUncertain))
		p := b.start()
		_, err := p.HandleBatch(t.Context(), []*idem.Message{
			keyed("A", "a1", "x", 0), keyed("B", "b1", "y", 1), keyed("B", "b2", "z", 2)})
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, b.store.sizes)
	})
}

// A stop is not held up by giving back claims one by one to a store that is down.
func TestBatch_StopWithStoreDown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, stop := context.WithCancel(t.Context())
		b.onBatch(func(ctx context.Context, _ []idem.Event[payload]) error {
			b.store.releaseErr = func() error { return dedup.ErrUnavailable }
			stop()
			<-ctx.Done()
			return ctx.Err()
		})
		p := b.start()
		began := time.Now()
		_, err := p.HandleBatch(ctx, series(100))
		require.ErrorIs(t, err, idem.ErrStopping)
		require.Less(t, time.Since(began), 15*time.Second, "grace is 10 s")
	})
}

// The other claims of a call that was cancelled for one are given back.
func TestBatch_LostClaimOfABatchFreesTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Lease = 10 * time.Minute
		calls := 0
		b.onBatch(func(ctx context.Context, events []idem.Event[payload]) error {
			if calls++; calls == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, idem.Timeout(time.Hour))
		b.store.renewErr = times(1, &dedup.LostError{Claims: []int{1}})
		p := b.start()
		began := time.Now()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		t.Log(time.Since(began), b.all())
		require.GreaterOrEqual(t, b.count("release: unknown"), 2)
	})
}

// A handler that was slow and is quick again is claimed ahead for again.
func TestBatch_PaceRecovers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		slow := true
		b.on(func(context.Context, idem.Event[payload]) error {
			if slow {
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(16))
		require.NoError(t, err)
		slow = false
		b.store.sizes = nil
		_, err = p.HandleBatch(t.Context(), series(500))
		require.NoError(t, err)
		require.Less(t, len(b.store.sizes), 300, "claims for 484 new events")
	})
}

// The time for which an event waits for others of its batch does not count as time of its retries.
func TestBatch_WaitingForNeighboursIsNoRetry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			failed := idem.BatchError{}
			for i, e := range events {
				time.Sleep(300 * time.Millisecond)
				if e.Attempt < 3 {
					failed[i] = errBoom
				}
			}
			return failed
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(20))
		require.NoError(t, err)
		var got []string
		for _, l := range b.sent.deadLetters() {
			got = append(got, headerOf(l, deadletter.HeaderEventID)+" attempts "+headerOf(l, deadletter.HeaderAttempts))
		}
		require.Empty(t, got, "each needs 3 of its 5 attempts, in less than 2 s of its own")
	})
}

// The error of a call of one event means that event.
func TestBatch_PermanentInACallOfOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		idem.On(b.router, "A", func(context.Context, idem.Event[payload]) error { return nil })
		runs := 0
		idem.OnBatch(b.router, "B", func(context.Context, []idem.Event[payload]) error { runs++; return idem.Permanent(errBoom) })
		p := b.start()
		_, err := p.HandleBatch(t.Context(), []*idem.Message{keyed("A", "a1", "x", 0), keyed("B", "b1", "y", 1)})
		require.NoError(t, err)
		require.Equal(t, 1, runs)
	})
}

// Failed events are given back although the successes cannot be recorded.
func TestBatch_FailuresAreGivenBackAlthoughSuccessesCannotBeRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = time.Second
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			return idem.BatchError{0: idem.NotApplied(errBoom)}
		}, idem.WhenUncertain(idem.DeadLetterUncertain))
		b.store.completeErr = func() error { return dedup.ErrUnavailable }
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(2))
		require.Error(t, err)
		require.Equal(t, 1, b.count("release: failed"), "e000 was not applied")
	})
}

// Nor by dead letters to a producer that hangs.
func TestBatch_StopWithProducerDown(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Producer = stuck{}
		ctx, stop := context.WithCancel(t.Context())
		b.onBatch(func(ctx context.Context, ev []idem.Event[payload]) error {
			stop()
			failed := idem.BatchError{}
			for i := range ev {
				failed[i] = idem.Permanent(errBoom)
			}
			return failed
		})
		p := b.start()
		began := time.Now()
		_, err := p.HandleBatch(ctx, series(20))
		require.ErrorIs(t, err, idem.ErrStopping)
		require.Less(t, time.Since(began), 25*time.Second, "one dead letter, and the grace")
	})
}

type stuck struct{}

func (stuck) Produce(ctx context.Context, _ ...*idem.Message) error { <-ctx.Done(); return ctx.Err() }

// Odd events in a row cost one question for all and one each.
func TestBatch_ManyDeadOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { return idem.Permanent(errBoom) })
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(64))
		require.NoError(t, err)
		b.store.sizes = nil
		_, err = p.HandleBatch(t.Context(), series(64))
		require.NoError(t, err)
		sum := 0
		for _, n := range b.store.sizes {
			sum += n
		}
		require.LessOrEqual(t, sum, 200)
	})
}

// An observer that panics leaks no right to a run.
func TestBatch_PanickingObserverLeaksNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		o := &panicky{}
		o.on.Store(true)
		b.cfg.Observers = []observe.Observer{o}
		b.on(succeed, idem.Concurrency(1))
		p := b.start()
		func() {
			defer func() { _ = recover() }()
			_ = p.Handle(t.Context(), message("e1", 0))
		}()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		require.NoError(t, p.Handle(ctx, message("e2", 1)))
	})
}
