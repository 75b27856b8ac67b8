package idem_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// bounds is a policy of a minute and five events.
var bounds = idem.UnavailablePolicy{RunFor: time.Minute, MaxEvents: 5}

// outage makes the calls of a store fail from now on.
type outage struct {
	mu  sync.Mutex
	err error
}

func (o *outage) set(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

func (o *outage) get() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (b *bench) away(err error) *outage {
	o := &outage{err: err}
	b.store.claimErr, b.store.completeErr, b.store.releaseErr = o.get, o.get, o.get
	return o
}

// settleFor lets the processor work on messages for a time of an outage, and returns how many were
// settled.
func (b *bench) settleFor(t *testing.T, d time.Duration, msgs []*idem.Message) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	n, err := b.p.HandleBatch(ctx, msgs)
	if err != nil {
		require.ErrorIs(t, err, idem.ErrStopping)
	}
	return n
}

func TestUnavailable_RunsWithinBounds(t *testing.T) {
	for name, register := range map[string]func(*bench, ...idem.Option){
		"On": func(b *bench, o ...idem.Option) { b.on(succeed, o...) },
		"OnBatch": func(b *bench, o ...idem.Option) {
			shapes["OnBatch"](b, func(context.Context) error { b.add("run 1"); return nil }, o...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				seen := b.counted()
				register(b, idem.WhenUnavailable(bounds))
				down := b.away(dedup.ErrUnavailable)
				b.start()
				all := series(8)
				began := time.Now()
				require.Equal(t, 5, b.settleFor(t, 20*time.Second, all))
				require.Equal(t, 5, b.count("run 1"))
				require.Len(t, seen.unprotected, 5)
				require.Equal(t, observe.StoreUnavailable, seen.unprotected[0].Reason)
				require.Equal(t, "e000", seen.unprotected[0].Key.ID)
				require.Equal(t, map[string]int{"unprotected": 5}, seen.settled)
				require.Zero(t, b.count("complete: done"))
				require.GreaterOrEqual(t, time.Since(began), 20*time.Second, "the others wait")
				require.Equal(t, 1, strings.Count(b.log.String(), "level=ERROR msg=\"store *idem_test.spy unavailable: events run without protection"))
				require.Equal(t, 1, strings.Count(b.log.String(), "level=ERROR msg=\"store *idem_test.spy unavailable: the bound"))

				down.set(nil) // the rest, and a copy of one that ran, are claimed as usual
				require.Equal(t, 3, b.settleFor(t, time.Minute, all[5:]))
				require.NoError(t, b.p.Handle(t.Context(), all[0]))
				require.NoError(t, b.p.Handle(t.Context(), all[0]))
				require.Equal(t, map[string]int{"unprotected": 5, "handled": 4, "duplicate": 1}, seen.settled)
				require.Contains(t, b.log.String(), "events ran without protection against duplicates\" handler=paid type=paid events=5")
			})
		})
	}
}

// A restart of the store lets no event run: the default of After is five seconds.
func TestUnavailable_WaitsFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		b.on(succeed, idem.WhenUnavailable(bounds))
		down := b.away(dedup.ErrUnavailable)
		b.start()
		time.AfterFunc(4*time.Second, func() { down.set(nil) })
		require.Equal(t, 3, b.settleFor(t, time.Minute, series(3)))
		require.Empty(t, seen.unprotected)
		require.Equal(t, map[string]int{"handled": 3}, seen.settled)
	})
}

func TestUnavailable_BoundOfTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		b.on(func(context.Context, idem.Event[payload]) error { time.Sleep(7 * time.Second); return nil },
			idem.WhenUnavailable(idem.UnavailablePolicy{RunFor: 20 * time.Second, MaxEvents: 100}))
		b.away(dedup.ErrUnavailable)
		b.start()
		require.Less(t, b.settleFor(t, time.Hour, series(20)), 5)
		require.NotEmpty(t, seen.unprotected)
	})
}

// The store is asked all the time, so that its return ends the exception.
func TestUnavailable_NoticesTheReturn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		b.on(func(context.Context, idem.Event[payload]) error { time.Sleep(100 * time.Millisecond); return nil },
			idem.WhenUnavailable(idem.UnavailablePolicy{RunFor: time.Hour, MaxEvents: 10_000}))
		down := b.away(dedup.ErrUnavailable)
		b.start()
		time.AfterFunc(10*time.Second, func() { down.set(nil) })
		require.Equal(t, 500, b.settleFor(t, time.Hour, series(500)))
		require.InDelta(t, 50, len(seen.unprotected), 25, "five seconds, and up to two until the next probe")
		require.Equal(t, 500, seen.settled["handled"]+seen.settled["unprotected"])
	})
}

// The bounds count over all lanes of a process.
func TestUnavailable_BoundsOfManyLanes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var runs sync.Map
		b.on(func(_ context.Context, e idem.Event[payload]) error { runs.Store(e.ID, true); return nil }, idem.WhenUnavailable(bounds))
		b.away(dedup.ErrUnavailable)
		b.start()
		all := series(40)
		var lanes sync.WaitGroup
		for i := range 4 {
			lanes.Go(func() { b.settleFor(t, 30*time.Second, all[10*i:10*i+10]) })
		}
		lanes.Wait()
		n := 0
		runs.Range(func(any, any) bool { n++; return true })
		require.Equal(t, bounds.MaxEvents, n)
	})
}

// Some errors of a store are no outage: a person must set it up, or it answers oddly.
func TestUnavailable_OtherErrorsWait(t *testing.T) {
	for name, err := range map[string]error{
		"not set up":   &dedup.SetupError{Err: dedup.ErrUnavailable},
		"another text": errBoom,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				seen := b.counted()
				b.on(succeed, idem.WhenUnavailable(bounds))
				b.away(err)
				b.start()
				require.Zero(t, b.settleFor(t, time.Minute, series(3)))
				require.Empty(t, seen.unprotected)
			})
		})
	}
}

// A store that takes requests and does not answer is an outage too.
func TestUnavailable_StoreThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		b.on(succeed, idem.WhenUnavailable(bounds))
		hang := make(chan struct{})
		b.store.claimErr = func() error { <-hang; return dedup.ErrUnavailable }
		b.start()
		require.Equal(t, 5, b.settleFor(t, time.Minute, series(8)))
		require.Len(t, seen.unprotected, 5)
		close(hang)
		synctest.Wait()
	})
}

// A failure is tried again in place, and its dead letter leaves no record.
func TestUnavailable_Failures(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "e001" {
				return errBoom
			}
			return nil
		}, idem.WhenUnavailable(bounds), idem.Retry(idem.RetryPolicy{MaxAttempts: 3}))
		b.away(dedup.ErrUnavailable)
		b.start()
		require.Equal(t, 3, b.settleFor(t, time.Minute, series(3)))
		require.Equal(t, 1, b.count("run 3"))
		require.Len(t, b.sent.deadLetters(), 1)
		require.Equal(t, map[string]int{"unprotected": 2, "dead_letter": 1}, seen.settled)
		require.Len(t, seen.unprotected, 3)
	})
}

// Two kinds of events wait for the store, since they end only with a record: a value that cannot be
// decoded, and a copy that the store waits for.
func TestUnavailable_WhatNeedsTheStoreWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		b.on(succeed, idem.WhenUnavailable(bounds))
		down := b.away(dedup.ErrUnavailable)
		b.start()
		bad := message("e1", 0)
		bad.Value = []byte(`{"event_id":"e1","type":"paid","amount":"x"}`)
		require.Equal(t, 1, b.settleFor(t, 30*time.Second, []*idem.Message{message("e0", 0), bad}))
		down.set(nil)
		require.Equal(t, 1, b.settleFor(t, 30*time.Second, []*idem.Message{bad}))
		require.Equal(t, map[string]int{"unprotected": 1, "dead_letter": 1}, seen.settled)
		require.NotContains(t, b.log.String(), "bound of WhenUnavailable", "the allowance is for events that run")
		require.Len(t, seen.unprotected, 1)
	})
}

func TestUnavailable_ReplaysWait(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		fail := times(1, idem.Permanent(errBoom))
		b.on(func(context.Context, idem.Event[payload]) error { return fail() }, idem.WhenUnavailable(bounds))
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 0)))
		again := b.replayed()
		down := b.away(dedup.ErrUnavailable)
		require.Equal(t, 1, b.settleFor(t, 30*time.Second, []*idem.Message{message("e0", 0), again}))
		down.set(nil)
		require.Equal(t, 1, b.settleFor(t, 30*time.Second, []*idem.Message{again}))
		require.Len(t, seen.unprotected, 1)
		require.Equal(t, map[string]int{"dead_letter": 1, "unprotected": 1, "handled": 1}, seen.settled)
	})
}

func TestUnavailable_Mistakes(t *testing.T) {
	run := idem.WhenUnavailable(bounds)
	for name, c := range map[string]struct {
		router, handler []idem.Option
		want            string
	}{
		"of the router":  {router: []idem.Option{run}, want: "give it to each handler itself"},
		"overridden":     {router: []idem.Option{run}, handler: []idem.Option{run}, want: "give it to each handler itself"},
		"no events":      {handler: []idem.Option{idem.WhenUnavailable(idem.UnavailablePolicy{RunFor: time.Minute})}, want: "must be positive"},
		"no time":        {handler: []idem.Option{idem.WhenUnavailable(idem.UnavailablePolicy{MaxEvents: 1})}, want: "must be positive"},
		"negative":       {handler: []idem.Option{idem.WhenUnavailable(idem.UnavailablePolicy{RunFor: 1, MaxEvents: 1, After: -1})}, want: "must be positive"},
		"at most once":   {handler: []idem.Option{run, idem.WhenUncertain(idem.DeadLetterUncertain)}, want: "promises at most one run"},
		"later attempts": {handler: []idem.Option{run, idem.RetryTopics(time.Second)}, want: "choose Blocking"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.router = idem.NewRouter(c.router...)
			b.on(succeed, c.handler...)
			p, err := idem.NewProcessor(b.router, b.cfg)
			if c.want == "" {
				require.NoError(t, err)
				require.NoError(t, p.Close())
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
	for _, shape := range []string{"OnTx", "OnBatchTx"} {
		t.Run(shape, func(t *testing.T) {
			b := newBench(t)
			b.cfg.Store = newGroupStore(b)
			shapes[shape](b, fineRun, run)
			_, err := idem.NewProcessor(b.router, b.cfg)
			require.ErrorContains(t, err, "WhenUnavailable is for On and OnBatch")
		})
	}
}

// The next attempt of an event that failed without the store is claimed, if the store is back.
func TestUnavailable_RetryIsClaimedAfterTheReturn_R19(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		outage  time.Duration
		attempt string
	}{
		"failure":            {idem.RetryAfter(4*time.Second, errBoom), 7 * time.Second, "run 2"},
		"outage of a server": {idem.Unavailable(errBoom), 20 * time.Second, "run 1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				seen := b.counted()
				began := time.Now()
				b.on(func(context.Context, idem.Event[payload]) error {
					if time.Since(began) < c.outage+3*time.Second && b.count("claim: fresh") == 0 {
						return c.err
					}
					return nil
				}, idem.WhenUnavailable(bounds))
				down := b.away(dedup.ErrUnavailable)
				time.AfterFunc(c.outage, func() { down.set(nil) })
				b.start()
				require.NoError(t, b.p.Handle(t.Context(), message("e1", 0)))
				require.Len(t, seen.unprotected, 1, "one delivery, however often it fails")
				require.Equal(t, []string{"claim: fresh", c.attempt, "complete: done"}, b.all()[len(b.all())-3:])
				require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
				require.Equal(t, map[string]int{"handled": 1, "duplicate": 1}, seen.settled)
			})
		})
	}
}

// Attempts with and without the store share the bound of the policy.
func TestUnavailable_FailedRunsCountAfterTheReturn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		b.on(func(context.Context, idem.Event[payload]) error { return idem.RetryAfter(4*time.Second, errBoom) },
			idem.WhenUnavailable(bounds), idem.Retry(idem.RetryPolicy{MaxAttempts: 4, InPlace: time.Minute}))
		down := b.away(dedup.ErrUnavailable)
		time.AfterFunc(11*time.Second, func() { down.set(nil) })
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 0)))
		for _, run := range []string{"run 1", "run 2", "run 3", "run 4"} {
			require.Equal(t, 1, b.count(run), run)
		}
		require.Zero(t, b.count("run 5"))
		require.Equal(t, 1, b.count("complete: dead"), "the dead letter has a record")
		require.Len(t, seen.unprotected, 1)
		require.Equal(t, map[string]int{"dead_letter": 1}, seen.settled)
	})
}

// An event takes one place of the allowance, however often it fails, and waits for the store after
// RunFor.
func TestUnavailable_BoundsOfAnEventThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		began, last := time.Now(), time.Duration(0)
		runs := 0
		b.on(func(context.Context, idem.Event[payload]) error {
			runs++
			last = time.Since(began)
			return idem.Unavailable(errBoom)
		}, idem.WhenUnavailable(idem.UnavailablePolicy{RunFor: 20 * time.Second, MaxEvents: 1}))
		b.away(dedup.ErrUnavailable)
		b.start()
		require.Zero(t, b.settleFor(t, time.Hour, series(2)))
		require.Greater(t, runs, 5)
		require.InDelta(t, 25*time.Second, last, float64(3*time.Second))
		require.Len(t, seen.unprotected, 1)
		require.Contains(t, b.log.String(), "the bound of WhenUnavailable is reached, events wait for the store\" handler=paid type=paid events=1")
	})
}

// An event that waits for its handler's breaker asks again before it runs without the store.
func TestUnavailable_ReturnDuringAPauseOfTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		seen := b.counted()
		began := time.Now()
		b.on(func(context.Context, idem.Event[payload]) error {
			if time.Since(began) < 30*time.Second {
				return idem.Unavailable(errBoom)
			}
			return nil
		}, idem.WhenUnavailable(bounds), idem.CircuitBreaker(1, time.Minute))
		on := func(context.Context, idem.Event[payload]) error { return nil }
		idem.On(b.router, "other", on)
		down := b.away(dedup.ErrUnavailable)
		b.start()
		var lanes sync.WaitGroup
		lanes.Go(func() { require.NoError(t, b.p.Handle(t.Context(), message("e1", 0))) })
		time.Sleep(30 * time.Second)
		down.set(nil)
		require.NoError(t, b.p.Handle(t.Context(), keyed("other", "o1", "x", 1)))
		lanes.Wait()
		require.Equal(t, map[string]int{"handled": 2}, seen.settled)
	})
}

// Rule 42: an event that its call refused until later does not run before, although its store has
// failed since then.
func TestUnavailable_RetryAfterOfACallIsWaitedFor_Rule42(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, first := newClock(), true
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			c.note(events...)
			if !first {
				return nil
			}
			first = false
			return idem.BatchError{
				0: idem.RetryAfter(time.Second, errBoom),
				1: idem.RetryAfter(4*time.Second, errBoom),
			}
		}, idem.WhenUnavailable(idem.UnavailablePolicy{After: time.Second, RunFor: time.Minute, MaxEvents: 5}))
		down := b.away(nil)
		time.AfterFunc(500*time.Millisecond, func() { down.set(dedup.ErrUnavailable) })
		b.start()
		require.Equal(t, 2, b.settleFor(t, time.Minute, series(2)))
		require.Len(t, c.calls, 3, c.calls)
		require.Equal(t, []string{"0s e000 e001", "4s e001"}, []string{c.calls[0], c.calls[2]})
	})
}

// Rule 42: the pause of a whole call holds for its events without the store too. Another lane has
// noticed the outage meanwhile.
func TestUnavailable_PauseOfAWholeCallIsWaitedFor_Rule42(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, later := newClock(), times(1, idem.RetryAfter(4*time.Second, errBoom))
		spare := idem.WhenUnavailable(idem.UnavailablePolicy{After: time.Second, RunFor: time.Minute, MaxEvents: 1000})
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			c.note(events...)
			time.Sleep(3 * time.Second)
			return later()
		}, spare)
		idem.On(b.router, "other", succeed, spare)
		down := b.away(nil)
		time.AfterFunc(500*time.Millisecond, func() { down.set(dedup.ErrUnavailable) })
		b.start()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var lane sync.WaitGroup
		lane.Go(func() {
			for i := int64(0); ctx.Err() == nil; i++ {
				_ = b.p.Handle(ctx, keyed("other", fmt.Sprint(i), "", i))
				time.Sleep(100 * time.Millisecond)
			}
		})
		require.Equal(t, 2, b.settleFor(t, time.Minute, series(2)))
		stop()
		lane.Wait()
		require.Equal(t, []string{"0s e000 e001", "7s e000", "10s e001"}, c.calls)
	})
}
