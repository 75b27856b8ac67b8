package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// tally counts the events of observers of several kinds.
type tally struct {
	mu          sync.Mutex
	settled     [7]int
	deferred    [7]int
	places      map[string]int
	duplicates  int
	deadLetters int
	skipped     int
	lost        int
	runs        []string // "begin 3", "end <nil>"
	calls       []string
	open        int // runs and calls that have begun and not ended
	verbs       map[observe.StoreVerb]int
	keys        map[observe.StoreVerb]int
	verdicts    map[dedup.Verdict]int
	failed      int // calls of a store
}

func newTally() *tally {
	return &tally{
		places: map[string]int{}, verbs: map[observe.StoreVerb]int{}, keys: map[observe.StoreVerb]int{}, verdicts: map[dedup.Verdict]int{},
	}
}

type runMark struct{}
type callMark struct{}

func (w *tally) BeginClaimGroup(ctx context.Context, r *observe.ClaimGroup) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	w.runs = append(w.runs, fmt.Sprintf("begin %d tx=%v", r.Len(), r.Transactional))
	return context.WithValue(ctx, runMark{}, r)
}

func (w *tally) EndClaimGroup(ctx context.Context, r *observe.ClaimGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	if ctx.Value(runMark{}) != r {
		w.runs = append(w.runs, "another context")
	}
	w.runs = append(w.runs, fmt.Sprintf("end %v", r.Err != nil))
}

func (w *tally) BeginCall(ctx context.Context, c *observe.Call) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open++
	if ctx.Value(runMark{}) == nil {
		w.calls = append(w.calls, "outside of a run")
	}
	w.calls = append(w.calls, fmt.Sprintf("begin %s %d first=%s", c.Type, c.Len(), c.Key(0).ID))
	return context.WithValue(ctx, callMark{}, c)
}

func (w *tally) EndCall(ctx context.Context, c *observe.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	if ctx.Value(callMark{}) != c {
		w.calls = append(w.calls, "another context")
	}
	w.calls = append(w.calls, fmt.Sprintf("end %v", c.Err))
}

func (w *tally) ObserveStoreCall(_ context.Context, e observe.StoreCallEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.verbs[e.Verb]++
	w.keys[e.Verb] += e.Keys
	for v := dedup.Fresh; v <= dedup.TooOld; v++ {
		w.verdicts[v] += e.Verdict(v)
	}
	if e.Err != nil {
		w.failed++
	}
}

func (w *tally) ObserveSettled(_ context.Context, e observe.SettledEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, n := range e.Counts {
		if e.Deferred {
			w.deferred[i] += n
		} else {
			w.settled[i] += n
		}
	}
	w.places[fmt.Sprintf("%s/%d", e.Topic, e.Partition)] += e.Total()
}

func (w *tally) ObserveDuplicate(context.Context, observe.DuplicateEvent) { w.add(&w.duplicates) }
func (w *tally) ObserveDeadLetter(context.Context, observe.DeadLetterEvent) {
	w.add(&w.deadLetters)
}
func (w *tally) ObserveSkipped(context.Context, observe.SkippedEvent) { w.add(&w.skipped) }
func (w *tally) ObserveLost(context.Context, observe.LostEvent)       { w.add(&w.lost) }

func (w *tally) add(n *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*n++
}

// A batch of claimed events is one run with a call of the handler for each; a failing one goes on
// by itself.
func TestObserveRun_Claimed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		w := newTally()
		b.cfg.Observers = []observe.Observer{w}
		fail := times(1, errBoom)
		b.on(func(ctx context.Context, e idem.Event[payload]) error {
			require.NotNil(t, ctx.Value(runMark{}), "the handler is under the run")
			require.NotNil(t, ctx.Value(callMark{}), "and under its call")
			if e.ID == "e001" {
				return fail()
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, []string{"begin 3 tx=false", "end false", "begin 1 tx=false", "end false", "begin 1 tx=false", "end false"}, w.runs)
		require.Equal(t, []string{
			"begin paid 1 first=e000", "end <nil>", "begin paid 1 first=e001", "end boom",
			"begin paid 1 first=e001", "end <nil>", "begin paid 1 first=e002", "end <nil>",
		}, w.calls)
		require.Equal(t, [7]int{observe.SettledHandled: 3}, w.settled)
		require.Equal(t, map[string]int{"orders/1": 3}, w.places)
		require.Equal(t, 5, w.verdicts[dedup.Fresh], "the two behind were claimed twice")
		require.Equal(t, 3, w.verbs[observe.VerbClaim])
		require.Equal(t, 3, w.verbs[observe.VerbComplete])
		require.Positive(t, w.verbs[observe.VerbRelease])
		require.Zero(t, w.open)
	})
}

// Events that share a transaction are one run; one that is rolled back says so.
func TestObserveRun_Transaction(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
		w := newTally()
		b.cfg.Observers = []observe.Observer{w}
		fail := times(2, errBoom)
		b.onGroup(func(ctx context.Context, _ *groupTx, e idem.Event[payload]) error {
			require.NotNil(t, ctx.Value(runMark{}))
			require.NotNil(t, ctx.Value(callMark{}))
			if e.ID == "e001" {
				return fail()
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, []string{"begin 3 tx=true", "end true"}, w.runs[:2], "rolled back")
		require.Contains(t, strings.Join(w.runs[2:], ","), "begin 1 tx=true,end true", "by itself, and rolled back again")
		require.Equal(t, []string{"begin paid 1 first=e000", "end <nil>", "begin paid 1 first=e001", "end boom"}, w.calls[:4])
		require.Equal(t, [7]int{observe.SettledHandled: 3}, w.settled)
		require.Equal(t, 3, w.verdicts[dedup.Fresh], "a rolled-back answer is none")
		require.Equal(t, 2, w.failed)
		require.Zero(t, w.open)
	})
}

// A panic, Goexit and a handler that hangs end their calls, too.
func TestObserveCall_EndsInAnyCase(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
		w := newTally()
		b.cfg.Observers = []observe.Observer{w}
		hang := make(chan struct{})
		var tries atomic.Int32
		b.onGroup(func(ctx context.Context, _ *groupTx, e idem.Event[payload]) error {
			if e.ID != "e001" {
				return nil
			}
			switch tries.Add(1) {
			case 1:
				panic(errBoom)
			case 2: // ignores its context, and is left behind
				<-hang
				return errors.New("late")
			}
			return nil
		}, idem.Timeout(time.Second))
		p := b.start()
		time.AfterFunc(time.Hour, func() { close(hang) })
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Zero(t, w.open, "%v", w.calls)
		require.Contains(t, w.calls, "end late")
		require.Equal(t, [7]int{observe.SettledHandled: 3}, w.settled)
	})
}

// buggy is an observer with a bug.
type buggy struct{}

func (buggy) BeginCall(context.Context, *observe.Call) context.Context { panic("a bug at the begin") }
func (buggy) EndCall(context.Context, *observe.Call)                   { panic("a bug at the end") }

// The bug of an observer on the goroutine of the handler is not taken for the handler's: no event
// is given up for it.
func TestObserveCall_PanicIsNotTheHandlers(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		w := newTally()
		b.cfg.Observers = []observe.Observer{buggy{}, w}
		b.onGroup(fine)
		_, err := b.start().HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, []string{"e000", "e001", "e002"}, s.effects)
		require.Zero(t, w.open)
		require.Contains(t, b.log.String(), "a bug at the begin")
		require.Contains(t, b.log.String(), "a bug at the end")
	})
}

// The run of a deferred event is no delivery. Each later attempt that comes by a topic is one.
func TestObserveSettled_LaterAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		w := newTally()
		b.cfg.Observers = []observe.Observer{w}
		fail := times(1, errBoom)
		b.on(func(context.Context, idem.Event[payload]) error { return fail() }, once, idem.KeyOrdered(5*time.Second))
		b.start()
		stop := b.runsDeferred()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		stop()
		require.Equal(t, [7]int{observe.SettledRescheduled: 2}, w.settled)
		require.Equal(t, [7]int{observe.SettledHandled: 2}, w.deferred)
	})
	inBubble(t, func(t *testing.T, b *bench) {
		w := newTally()
		b.cfg.Observers = []observe.Observer{w}
		b.tiers(failing(1, errBoom), 5*time.Second)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 42)))
		b.deliverCopies()
		require.Equal(t, [7]int{observe.SettledRescheduled: 1, observe.SettledHandled: 1}, w.settled)
		require.Equal(t, map[string]int{"orders/1": 1, "orders.g.retry.5s/7": 1}, w.places, "by where they were fetched from")
	})
}

// Events that are settled behind an event that has to wait are reported. When they are passed to
// the processor once more they are duplicates. The equation holds, although no record was fetched
// twice.
func TestObserveSettled_BehindOneThatWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		w, away := newTally(), true
		b.cfg.Observers, b.cfg.BusyWait = []observe.Observer{w}, time.Second
		b.store.pingErr = dedup.ErrUnavailable // the outage is not the event's fault
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			if away && events[0].ID == "e000" {
				return idem.BatchError{0: idem.Unavailable(errBoom)}
			}
			return nil
		})
		var wait *idem.WaitError
		n, err := b.start().HandleBatch(t.Context(), series(5))
		require.ErrorAs(t, err, &wait)
		require.Zero(t, n)
		require.Equal(t, [7]int{observe.SettledHandled: 4}, w.settled)
		away = false
		_, err = b.p.HandleBatch(t.Context(), series(5))
		require.NoError(t, err)
		require.Equal(t, [7]int{observe.SettledHandled: 5, observe.SettledDuplicate: 4}, w.settled)
		require.Equal(t, 4, w.duplicates)
	})
}

// A claim that is lost while its handler runs is told.
func TestObserveLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		w := newTally()
		b.cfg.Observers = []observe.Observer{w}
		b.store.completeErr = times(1, &dedup.LostError{Claims: []int{0}})
		b.on(succeed)
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, w.lost)
		require.Zero(t, w.failed, "a store that answers has not failed")
	})
}

// So is one that its renewal finds lost, which cancels the handler: whether that obeys or hangs,
// and alone of those that share a call.
func TestObserveLost_ByRenewal(t *testing.T) {
	register := map[string]func(*bench, func(context.Context) error){
		"on": func(b *bench, wait func(context.Context) error) {
			b.on(func(ctx context.Context, _ idem.Event[payload]) error { return wait(ctx) })
		},
		"onbatch": func(b *bench, wait func(context.Context) error) {
			b.onBatch(func(ctx context.Context, _ []idem.Event[payload]) error { return wait(ctx) })
		},
	}
	for name, add := range register {
		for _, n := range []int{1, 3} {
			for _, hangs := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/hangs=%v", name, n, hangs), func(t *testing.T) {
					inBubble(t, func(t *testing.T, b *bench) {
						w, calls, hang := newTally(), atomic.Int32{}, make(chan struct{})
						b.cfg.Observers = []observe.Observer{w}
						add(b, func(ctx context.Context) error {
							if calls.Add(1) > 1 {
								return nil
							}
							if hangs {
								<-hang
							}
							<-ctx.Done()
							return ctx.Err()
						})
						b.store.renewErr = times(1, &dedup.LostError{Claims: []int{0}})
						_, err := b.start().HandleBatch(t.Context(), series(n))
						require.NoError(t, err)
						close(hang)
						synctest.Wait()
						require.Equal(t, 1, w.lost)
					})
				})
			}
		}
	}
}

// exiting ends the goroutine that tells it of a call, as require.FailNow does in an observer of a
// test.
type exiting struct{}

func (exiting) BeginCall(context.Context, *observe.Call) context.Context {
	runtime.Goexit()
	return nil
}
func (exiting) EndCall(context.Context, *observe.Call) {}

// An observer that ends the goroutine of a handler makes no call hang. The effect is that of a
// handler that did so.
func TestCallObserver_Goexit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Observers = []observe.Observer{exiting{}}
		b.on(succeed, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := b.start().HandleBatch(ctx, series(1))
		require.NoError(t, err)
		require.Len(t, b.sent.deadLetters(), 1)
	})
}

// Each settled delivery is counted once, by its settlement, for all events and batches: duplicates
// = deliveries - events - dead letters. Deliveries without a handler are taken off before.
func TestObserveSettled_Random(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("IDEM_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("IDEM_SEED=%d", seed)
	for round := range 100 {
		rnd := rand.New(rand.NewPCG(seed, uint64(round)))
		if !t.Run(strconv.Itoa(round), func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) { randomSettlements(t, rnd, b) })
		}) {
			return
		}
	}
}

// settlers registers the same handler in all four ways.
func (b *bench) settlers(rnd *rand.Rand, done func(id string)) {
	one := func(e idem.Event[payload]) error {
		switch {
		case e.ID[3] == '7':
			return idem.Permanent(errBoom)
		case rnd.IntN(20) == 0:
			return errBoom
		}
		return nil
	}
	all := func(events []idem.Event[payload]) error {
		failed := idem.BatchError{}
		for i, e := range events {
			if err := one(e); err != nil {
				failed[i] = err
			}
		}
		return failed
	}
	forever := idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit, InPlace: idem.Forever})
	idem.On(b.router, "A", func(_ context.Context, e idem.Event[payload]) error {
		err := one(e)
		if err == nil {
			done(e.ID)
		}
		return err
	}, forever)
	idem.OnTx(b.router, "B", func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
		tx.effects = append(tx.effects, e.ID)
		return one(e)
	}, forever)
	idem.OnBatch(b.router, "C", func(_ context.Context, events []idem.Event[payload]) error {
		err := all(events)
		for i, e := range events {
			if err.(idem.BatchError)[i] == nil { //nolint:errorlint // just made
				done(e.ID)
			}
		}
		return err
	}, forever)
	idem.OnBatchTx(b.router, "D", func(_ context.Context, tx *groupTx, events []idem.Event[payload]) error {
		tx.effects = append(tx.effects, ids(events)...)
		return all(events)
	}, forever)
}

func randomSettlements(t *testing.T, rnd *rand.Rand, b *bench) {
	w := newTally()
	b.cfg.Observers = []observe.Observer{w}
	applied := map[string]int{}
	b.settlers(rnd, func(id string) { applied[id]++ })
	var log []*idem.Message
	for i := range 150 {
		n := rnd.IntN(60)
		typ := string("ABCD"[n%4])
		m := keyed(typ, fmt.Sprintf("e%03d", n), fmt.Sprintf("k%d", n%7), int64(i))
		m.Partition = int32(n % 2)
		switch rnd.IntN(12) {
		case 0: // a tombstone
			m.Value = nil
		case 1:
			m = keyed("unknown", fmt.Sprintf("e%03d", n), "k", int64(i))
		case 2:
			m.Value = []byte("{")
		}
		log = append(log, m)
		if rnd.IntN(5) == 0 { // the same record again
			log = append(log, log[rnd.IntN(len(log))])
		}
	}
	nobody := 0
	for _, m := range log {
		if m.Value == nil || strings.Contains(string(m.Value), "unknown") {
			nobody++
		}
	}
	p := b.start()
	stops := 0
	for from := 0; from < len(log); {
		to := min(from+1+rnd.IntN(40), len(log))
		ctx, cancel := context.WithCancelCause(t.Context())
		if rnd.IntN(4) == 0 { // in the middle, perhaps behind an event that waits for its next try
			time.AfterFunc(time.Duration(rnd.IntN(300))*time.Millisecond, func() { cancel(idem.ErrPartitionLost) })
		}
		settled, err := p.HandleBatch(ctx, log[from:to])
		cancel(nil)
		if err != nil {
			stops++
		}
		from += settled
	}
	total := 0
	for _, n := range w.settled {
		total += n
	}
	require.GreaterOrEqual(t, total, len(log))
	require.Equal(t, w.duplicates, w.settled[observe.SettledDuplicate])
	require.Equal(t, w.deadLetters, w.settled[observe.SettledDeadLetter])
	require.Equal(t, w.skipped, w.settled[observe.SettledSkipped])
	require.GreaterOrEqual(t, w.skipped, nobody)
	events := len(applied) + len(b.cfg.Store.(*groupStore).effects)
	require.Equal(t, events, w.settled[observe.SettledHandled], "each event took effect once")
	require.Equal(t, total-w.skipped-events-w.deadLetters, w.settled[observe.SettledDuplicate], "after %d stops", stops)
	require.Zero(t, w.settled[observe.SettledRescheduled]+w.settled[observe.SettledFallback])
	require.Zero(t, w.open)
}
