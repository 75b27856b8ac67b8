package idem_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Rule 13: a stop lets a handler finish; its success is recorded.
func TestStop_RunningHandlerMayFinish(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		b.on(func(ctx context.Context, _ idem.Event[payload]) error {
			cancel()
			time.Sleep(5 * time.Second)
			return ctx.Err()
		})
		p := b.start()
		settled, err := p.HandleBatch(ctx, []*idem.Message{message("e1", 0), message("e2", 1)})
		require.ErrorIs(t, err, idem.ErrStopping)
		require.Equal(t, 1, settled, "nothing new is begun")
		require.Equal(t, []string{"claim: fresh", "run 1", "complete: done", "release: unstarted"}, b.all())
	})
}

// Rule 13: an event that is cut short is given to the next owner at once, as uncertain, and no
// attempt is counted.
func TestStop_HandlerIsCancelledShortlyBeforeTheGraceEnds(t *testing.T) {
	for _, c := range []struct {
		policy idem.UncertainPolicy
		want   []string
	}{
		{idem.RerunUncertain, []string{"claim: fresh", "run 1", "release: unknown", "claim: uncertain", "run 1", "complete: done"}},
		{idem.DeadLetterUncertain, []string{"claim: fresh", "run 1", "dead letter: failed", "complete: dead", "claim: dead"}},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			ctx, cancel := context.WithCancel(t.Context())
			var took time.Duration
			b.on(func(ctx context.Context, e idem.Event[payload]) error {
				if e.Uncertain {
					return nil
				}
				began := time.Now()
				cancel()
				<-ctx.Done()
				took = time.Since(began)
				require.ErrorIs(t, context.Cause(ctx), idem.ErrStopping)
				return ctx.Err()
			}, idem.WhenUncertain(c.policy))
			p := b.start()
			err := p.Handle(ctx, message("e1", 0))
			if c.policy == idem.RerunUncertain {
				require.ErrorIs(t, err, idem.ErrStopping)
			} else {
				require.NoError(t, err, "rule 5: cancelled is uncertain, and uncertain goes to a person")
			}
			require.Equal(t, 8*time.Second, took, "grace of 10 s less 2 s")
			require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
			require.Equal(t, c.want, b.all())
		})
	}
}

// K-11: a lost partition has a new owner already: no grace.
func TestStop_LostPartitionCancelsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancelCause(t.Context())
		b.on(func(ctx context.Context, _ idem.Event[payload]) error {
			cancel(idem.ErrPartitionLost)
			<-ctx.Done()
			return ctx.Err()
		})
		p := b.start()
		began := time.Now()
		require.ErrorIs(t, p.Handle(ctx, message("e1", 0)), idem.ErrPartitionLost)
		require.Zero(t, time.Since(began))
	})
}

// K-07: a handler that ignores its context is abandoned. Its late success has no effect if the
// event was handled meanwhile (rule 13).
func TestStop_HungHandlerIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		ctx, cancel := context.WithCancel(t.Context())
		wake := make(chan struct{})
		var first atomic.Bool
		b.on(func(context.Context, idem.Event[payload]) error {
			if first.CompareAndSwap(false, true) {
				cancel()
				<-wake
			}
			return nil
		})
		p := b.start()
		began := time.Now()
		err := p.Handle(ctx, message("e1", 0))
		require.ErrorIs(t, err, idem.ErrAbandoned)
		require.ErrorIs(t, err, idem.ErrStopping)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Equal(t, 1, p.Status().Abandoned)

		require.NoError(t, p.Handle(t.Context(), message("e1", 0)), "the next owner need not wait for the lease")
		require.Less(t, time.Since(began), 11*time.Second)
		require.ErrorIs(t, p.Close(), idem.ErrAbandoned, "rule 56: a stop that left something behind says so")
		close(wake)
		synctest.Wait()
		require.Equal(t, []string{"claim: fresh", "run 1", "release: unknown", "claim: uncertain", "run 1", "complete: done", "complete: lost"}, b.all())
		require.Zero(t, p.Status().Abandoned)
	})
}

// leaveBehind delivers msgs to a handler that hangs until wake is called, past a stop.
func leaveBehind(t *testing.T, b *bench, handler func(hang func()), msgs ...*idem.Message) (wake func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	var first atomic.Bool
	handler(func() {
		if first.CompareAndSwap(false, true) {
			cancel()
			<-hold
		}
	})
	_, err := b.start().HandleBatch(ctx, msgs)
	require.ErrorIs(t, err, idem.ErrAbandoned)
	return func() {
		close(hold)
		synctest.Wait()
	}
}

// Rule 13: a handler that was left behind succeeds after all. No worker has claimed its event
// meanwhile, so it is not run again.
func TestStop_LateSuccess_Rule13(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		wake := leaveBehind(t, b, func(hang func()) {
			b.on(func(context.Context, idem.Event[payload]) error { hang(); return nil })
		}, message("e1", 0))
		wake()
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"claim: fresh", "run 1", "release: unknown", "complete: done", "claim: done"}, b.all())
		require.Contains(t, b.log.String(), "succeeded=1 recorded=1")
	})
}

// The store is away when the handler succeeds: it is told for ten seconds, with pauses.
func TestStop_LateSuccessInAnOutage_Rule13(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		wake := leaveBehind(t, b, func(hang func()) {
			b.on(func(context.Context, idem.Event[payload]) error { hang(); return nil })
		}, message("e1", 0))
		b.store.completeErr = times(4, dedup.ErrUnavailable)
		wake()
		time.Sleep(10 * time.Second)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"), "%v", b.all())
		require.Equal(t, 1, b.count("complete: done"))
	})
}

// A store that stays away is not told for ever, and does not hold up Close.
func TestStop_LateSuccessIsNotToldForEver(t *testing.T) {
	for _, closes := range []bool{false, true} {
		inBubble(t, func(t *testing.T, b *bench) {
			wake := leaveBehind(t, b, func(hang func()) {
				b.on(func(context.Context, idem.Event[payload]) error { hang(); return nil })
			}, message("e1", 0))
			b.store.completeErr = times(1<<20, dedup.ErrUnavailable)
			began := time.Now()
			wake()
			if closes {
				require.NoError(t, b.p.Close())
				require.Less(t, time.Since(began), time.Second)
			} else {
				time.Sleep(13 * time.Second)
			}
			synctest.Wait()
			tries := len(b.all()) - 3
			require.GreaterOrEqual(t, tries, 2)
			require.LessOrEqual(t, tries, 60, "with pauses, which are drawn: 25 tries happen once in a thousand times")
			time.Sleep(time.Hour)
			require.Len(t, b.all(), tries+3, "no more")
			require.Contains(t, b.log.String(), "succeeded=1 recorded=0")
		})
	}
}

// A call of many events that was left behind names those that failed: the others are recorded.
func TestStop_LateBatchError_Rule13(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		again []string
	}{
		{"none", idem.BatchError{}, nil},
		{"one", idem.BatchError{1: errBoom}, []string{"e001"}},
		{"wrapped", fmt.Errorf("mail: %w", idem.BatchError{0: errBoom, 2: errBoom}), []string{"e000", "e002"}},
		{"all", idem.BatchError{0: errBoom, 1: errBoom, 2: errBoom}, []string{"e000", "e001", "e002"}},
		{"out of range", idem.BatchError{7: errBoom}, []string{"e000", "e001", "e002"}},
		{"another", errBoom, []string{"e000", "e001", "e002"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				var again []string
				late := c.err
				wake := leaveBehind(t, b, func(hang func()) {
					b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
						if len(events) == 3 && late != nil {
							hang()
							err := late
							late = nil
							return err
						}
						again = append(again, ids(events)...)
						return nil
					})
				}, series(3)...)
				wake()
				_, err := b.p.HandleBatch(t.Context(), series(3))
				require.NoError(t, err)
				require.Equal(t, c.again, again)
			})
		})
	}
}

// Rule 48: so many hanging handlers mean that the process should end.
func TestStop_TooManyAbandonedHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		wake := make(chan struct{})
		b.on(func(context.Context, idem.Event[payload]) error { <-wake; return nil })
		p := b.start()
		for i := range int64(64) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(idem.ErrPartitionLost) })
			require.ErrorIs(t, p.Handle(ctx, message(fmt.Sprint("e", i), i)), idem.ErrAbandoned)
		}
		runs := b.count("run 1")
		require.ErrorContains(t, p.Handle(t.Context(), message("z", 99)), "restart the process")
		require.Equal(t, runs, b.count("run 1"), "nothing more is begun")
		close(wake)
		synctest.Wait()
		require.NoError(t, p.Close())
	})
}

// K-08: a back-off ends with the context.
func TestStop_EndsABackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		ctx, cancel := context.WithCancel(t.Context())
		b.on(func(context.Context, idem.Event[payload]) error {
			time.AfterFunc(time.Second, cancel)
			return idem.RetryAfter(4*time.Second, errBoom)
		})
		p := b.start()
		began := time.Now()
		require.ErrorIs(t, p.Handle(ctx, message("e1", 0)), idem.ErrStopping)
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, []string{"claim: fresh", "run 1", "release: failed"}, b.all(), "nobody sleeps holding a claim (rule 5)")
	})
}

// A hung handler that is past its time-out, without a stop, is waited for and reported (K-13). A
// second run beside the first would not help.
func TestStop_HungHandlerWithoutAStopIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(context.Context, idem.Event[payload]) error { time.Sleep(5 * time.Minute); return nil })
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"))
		require.Contains(t, b.log.String(), "handler ignores its cancelled context")
	})
}
