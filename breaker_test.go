package idem_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// changes keeps the events of breakers that observers get.
type changes struct {
	mu  sync.Mutex
	all []observe.BreakerEvent
}

func (c *changes) ObserveBreaker(_ context.Context, e observe.BreakerEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, e)
}

// states returns the states in their order.
func (c *changes) states() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.all {
		all = append(all, e.State.String())
	}
	return all
}

// dependency is something that handlers need, and that can be down.
type dependency struct {
	down         atomic.Bool
	calls, most  atomic.Int32 // all, and at a time
	now, answers atomic.Int32
}

func (d *dependency) call(context.Context) error {
	d.calls.Add(1)
	if n := d.now.Add(1); n > d.most.Load() {
		d.most.Store(n)
	}
	defer d.now.Add(-1)
	time.Sleep(10 * time.Millisecond)
	if d.down.Load() {
		return idem.Unavailable(errBoom)
	}
	d.answers.Add(1)
	return nil
}

// inLanes handles each message in a lane of its own, and returns when all are settled.
func (b *bench) inLanes(t *testing.T, msgs []*idem.Message) {
	t.Helper()
	var lanes sync.WaitGroup
	for _, m := range msgs {
		lanes.Go(func() {
			if err := b.p.Handle(t.Context(), m); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	lanes.Wait()
}

// An outage of hours: few calls reach the dependency, one at a time, and no event is given up.
func TestBreaker_LongOutage(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		var d dependency
		d.down.Store(true)
		shapes[shape](b, d.call, idem.CircuitBreaker(5, 10*time.Second))
		b.start()
		time.AfterFunc(time.Minute, func() { d.most.Store(0) }) // of the trials alone
		time.AfterFunc(time.Hour, func() { d.down.Store(false) })
		var most, calls atomic.Int32
		var open atomic.Value
		time.AfterFunc(time.Hour-time.Millisecond, func() {
			most.Store(d.most.Load())
			calls.Store(d.calls.Load())
			open.Store(b.p.Status().OpenBreakers)
		})
		b.inLanes(t, series(20))
		require.EqualValues(t, 1, most.Load(), "one tries at a time")
		require.LessOrEqual(t, calls.Load(), int32(40+360), "every ten seconds")
		require.Equal(t, []string{"paid"}, open.Load())
		require.EqualValues(t, 20, d.answers.Load())
		require.Empty(t, b.sent.deadLetters())
		require.Empty(t, b.p.Status().OpenBreakers)
	})
}

// The store is not asked for events that wait.
func TestBreaker_NoClaimsWhileItIsOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var d dependency
		d.down.Store(true)
		shapes["On"](b, d.call, idem.CircuitBreaker(1, time.Minute))
		b.start()
		time.AfterFunc(10*time.Minute, func() { d.down.Store(false) })
		b.inLanes(t, series(20))
		require.LessOrEqual(t, b.store.claims, 20+10+20)
	})
}

func TestBreaker_IsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := &changes{}
		b.cfg.Observers = []observe.Observer{c}
		fail := times(3, idem.Unavailable(errBoom))
		shapes["On"](b, func(context.Context) error { return fail() }, idem.CircuitBreaker(2, 10*time.Second), idem.Name("mail"))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"open", "half_open", "open", "half_open", "closed"}, c.states())
		first, last := c.all[0], c.all[4]
		require.Equal(t, observe.BreakerEvent{Group: "g", Handler: "mail", Type: "paid", State: observe.BreakerOpen, Err: first.Err}, first)
		require.ErrorIs(t, first.Err, errBoom)
		require.GreaterOrEqual(t, last.For, 20*time.Second)
		require.False(t, last.Ended)
		for _, line := range []string{
			"level=WARN msg=\"circuit breaker opens: the events of the handler wait\" handler=mail",
			"level=INFO msg=\"circuit breaker is half-open: one event tries\"", "level=INFO msg=\"circuit breaker opens again\"",
			"level=INFO msg=\"circuit breaker closes: the events of the handler run\"",
		} {
			require.Contains(t, b.log.String(), line)
		}
		require.Equal(t, 1, strings.Count(b.log.String(), "level=WARN"))
	})
}

// Errors without the mark, and outages with successes between them, open no breaker.
func TestBreaker_StaysClosed(t *testing.T) {
	for name, errs := range map[string][]error{
		"ordinary failures":  {errBoom, errBoom, errBoom, errBoom},
		"too few":            {idem.Unavailable(errBoom), nil, idem.Unavailable(errBoom), nil},
		"failures of others": {idem.Unavailable(errBoom), idem.Permanent(errBoom), nil, idem.Unavailable(errBoom)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				c := &changes{}
				b.cfg.Observers = []observe.Observer{c}
				i := 0
				shapes["On"](b, func(context.Context) error {
					if i++; i <= len(errs) {
						return errs[i-1]
					}
					return nil
				}, idem.CircuitBreaker(2, time.Minute))
				_, err := b.start().HandleBatch(t.Context(), series(5))
				require.NoError(t, err)
				require.Empty(t, c.all)
			})
		})
	}
}

// An event that alone finds the dependency down is an ordinary failure in the end, as without a
// breaker.
func TestBreaker_EventThatIsTheCause(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		idem.On(b.router, "bad", func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "poison" {
				return idem.Unavailable(errBoom)
			}
			return nil
		}, idem.CircuitBreaker(3, 10*time.Second))
		p := b.start()
		ctx, cancel := context.WithCancel(t.Context())
		var lanes sync.WaitGroup
		lanes.Go(func() {
			defer cancel()
			if err := p.Handle(t.Context(), keyed("bad", "poison", "", 0)); err != nil {
				t.Errorf("%v", err)
			}
		})
		lanes.Go(func() { // another lane has successes all the time
			for i := int64(1); ctx.Err() == nil; i++ {
				_ = p.Handle(ctx, keyed("bad", fmt.Sprint(i), "", i))
				time.Sleep(time.Second)
			}
		})
		lanes.Wait()
		require.Len(t, b.sent.deadLetters(), 1)
	})
}

// A foreign loop gets the time after which it should come again.
func TestBreaker_ForeignLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = 3 * time.Second
		shapes["On"](b, func(context.Context) error { return idem.Unavailable(errBoom) }, idem.CircuitBreaker(1, time.Minute))
		p := b.start()
		began := time.Now()
		err := p.Handle(t.Context(), message("e1", 0))
		var wait *idem.WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.Positive(t, wait.After)
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
	})
}

// A duplicate takes no turn: the next event tries.
func TestBreaker_DuplicateIsNoTrial(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var d dependency
		shapes["On"](b, d.call, idem.CircuitBreaker(1, 10*time.Second))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		d.down.Store(true)
		stopped, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.Error(t, p.Handle(stopped, message("e2", 1)), "the breaker opens, and the lane ends")
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)), "it waits and is skipped")
		waited := time.Since(began) // until the next trial, which jitter delays
		require.True(t, waited >= 9*time.Second && waited < 10*time.Second, "waited %s", waited)
		require.Equal(t, []string{"paid"}, p.Status().OpenBreakers)
		d.down.Store(false)
		began = time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e2", 1)))
		require.Less(t, time.Since(began), time.Second, "the turn is free")
		require.Empty(t, p.Status().OpenBreakers)
	})
}

// An event that another worker holds takes no turn either, although it waits for minutes.
func TestBreaker_BusyEventIsNoTrial(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		claimAs(t, b, "busy", 10*time.Minute)
		b.halfOpen(t, shapes["On"])
		b.inLane(t, message("busy", 2))
		time.Sleep(100 * time.Millisecond)
		b.soon(t)
		require.Empty(t, b.p.Status().OpenBreakers)
	})
}

// A run with another result leaves the turn to the next event, although its dead letter cannot be
// published.
func TestBreaker_UnpublishedDeadLetterIsNoTrial(t *testing.T) {
	inShapes(t, func(t *testing.T, b *bench, shape string) {
		b.sent.fail = noBroker
		b.halfOpen(t, shapes[shape], idem.Permanent(errBoom))
		b.inLane(t, message("bad", 2))
		time.Sleep(100 * time.Millisecond)
		b.soon(t)
		require.Empty(t, b.p.Status().OpenBreakers)
	})
}

// halfOpen starts with a handler whose breaker waits for one run. The runs end with results, and
// then with nil.
func (b *bench) halfOpen(
	t *testing.T, shape func(*bench, func(context.Context) error, ...idem.Option), results ...error,
) {
	t.Helper()
	results = append([]error{idem.Unavailable(errBoom)}, results...)
	runs := 0
	shape(b, func(context.Context) error {
		if runs++; runs <= len(results) {
			return results[runs-1]
		}
		return nil
	}, idem.CircuitBreaker(1, 10*time.Second))
	p := b.start()
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	require.Error(t, p.Handle(ctx, message("e1", 1)), "the breaker opens, and the lane ends")
	time.Sleep(10 * time.Second)
	require.Equal(t, []string{"paid"}, p.Status().OpenBreakers)
}

// A group of waiting events does not run in a lane that comes to them while the breaker is open,
// and one that runs stops before its next call.
func TestBreaker_GroupsWaitToo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var down atomic.Bool
		down.Store(true)
		var mu sync.Mutex
		begun := map[string]time.Duration{}
		began := time.Now()
		idem.On(b.router, "paid", func(_ context.Context, e idem.Event[payload]) error {
			mu.Lock()
			begun[e.ID] = time.Since(began)
			mu.Unlock()
			if e.ID == "first" {
				if down.Load() {
					return idem.Unavailable(errBoom)
				}
				return nil
			}
			time.Sleep(time.Second)
			return nil
		}, idem.CircuitBreaker(1, time.Hour))
		p := b.start()
		var lanes sync.WaitGroup
		lane := func(after time.Duration, msgs ...*idem.Message) {
			lanes.Go(func() {
				time.Sleep(after)
				if _, err := p.HandleBatch(t.Context(), msgs); err != nil {
					t.Errorf("%v", err)
				}
			})
		}
		lane(0, series(3)...)
		lane(500*time.Millisecond, message("first", 9))
		lane(2*time.Second, keyed("paid", "late1", "", 10), keyed("paid", "late2", "", 11))
		time.AfterFunc(time.Minute, func() { down.Store(false) })
		lanes.Wait()
		require.Less(t, begun["e000"], time.Second)
		for _, id := range []string{"e001", "e002", "late1", "late2"} {
			require.GreaterOrEqual(t, begun[id], time.Hour, id)
		}
	})
}

// A transaction of many events does not begin while the breaker is open.
func TestBreaker_TransactionsWaitToo(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
		var mu sync.Mutex
		var first []time.Duration
		began := time.Now()
		fail := times(1, idem.Unavailable(errBoom))
		b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error {
			mu.Lock()
			defer mu.Unlock()
			if e.ID == "first" {
				return fail()
			}
			first = append(first, time.Since(began))
			return nil
		}, idem.CircuitBreaker(1, time.Hour))
		p := b.start()
		var lanes sync.WaitGroup
		for i, msgs := range [][]*idem.Message{{message("first", 9)}, series(3)} {
			lanes.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if _, err := p.HandleBatch(t.Context(), msgs); err != nil {
					t.Errorf("%v", err)
				}
			})
		}
		lanes.Wait()
		require.Len(t, first, 3)
		require.GreaterOrEqual(t, first[0], time.Hour)
	})
}

// Events of a batch that name the outage count, and so do those of a transaction.
func TestBreaker_NamedErrors(t *testing.T) {
	for _, shape := range []string{"OnBatch", "OnBatchTx"} {
		t.Run(shape, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
				c := &changes{}
				b.cfg.Observers = []observe.Observer{c}
				fail := times(1, idem.Unavailable(errBoom))
				shapes[shape](b, func(context.Context) error {
					if err := fail(); err != nil {
						return idem.BatchError{0: err}
					}
					return nil
				}, idem.CircuitBreaker(1, 10*time.Second))
				_, err := b.start().HandleBatch(t.Context(), series(3))
				require.NoError(t, err)
				require.Equal(t, []string{"open", "half_open", "closed"}, c.states())
				require.Empty(t, b.sent.deadLetters())
			})
		})
	}
}

// The breaker of one handler does not stop another.
func TestBreaker_OneForEachHandler(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.router = idem.NewRouter(idem.CircuitBreaker(1, time.Hour))
		shapes["On"](b, func(context.Context) error { return idem.Unavailable(errBoom) })
		idem.On(b.router, "other", succeed)
		b.cfg.BusyWait = time.Second
		p := b.start()
		require.Error(t, p.Handle(t.Context(), message("e1", 0)))
		require.NoError(t, p.Handle(t.Context(), keyed("other", "e2", "", 1)))
	})
}

// A stop ends the wait, and for observers that count, a closed processor has no open breaker.
func TestBreaker_Stop(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := &changes{}
		b.cfg.Observers = []observe.Observer{c}
		shapes["On"](b, func(context.Context) error { return idem.Unavailable(errBoom) }, idem.CircuitBreaker(1, time.Hour))
		b.start()
		began := time.Now()
		require.Zero(t, b.settleFor(t, time.Minute, series(3)))
		require.LessOrEqual(t, time.Since(began), time.Minute+time.Second)
		require.NoError(t, b.p.Close())
		require.NoError(t, b.p.Close())
		require.Equal(t, []string{"open", "closed"}, c.states())
		require.True(t, c.all[1].Ended)
	})
}

func TestBreaker_Mistakes(t *testing.T) {
	for _, opt := range []idem.Option{idem.CircuitBreaker(-1, time.Second), idem.CircuitBreaker(1, 0), idem.CircuitBreaker(0, time.Second), idem.CircuitBreaker(1, -1)} {
		b := newBench(t)
		b.on(succeed, opt)
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, "CircuitBreaker wants")
	}
	b := newBench(t)
	b.router = idem.NewRouter(idem.CircuitBreaker(1, time.Second))
	b.on(succeed, idem.CircuitBreaker(0, 0))
	b.start()
	require.NoError(t, b.p.Close())
}
