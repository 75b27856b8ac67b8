package otelidem_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

const consumed = "messaging.client.consumed.messages"

func TestCountsOfEveryOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t)
		r := idem.NewRouter()
		fail := map[string]int{"e2": 1, "e3": 100}
		idem.On(r, "paid", func(_ context.Context, e idem.Event[paid]) error {
			if fail[e.ID]--; fail[e.ID] >= 0 {
				return errBoom
			}
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 3}))
		letters := &sink{}
		p := tm.processor(r, func(c *idem.Config) { c.Producer = letters })
		tombstone := message("", 6)
		tombstone.Value = nil
		handle(t, p, message("e1", 1), message("e2", 2), message("e3", 3), message("e1", 4),
			typed("other", "e4", 5), tombstone,
			&idem.Message{
				Topic: "orders", Partition: 1, Offset: 7, Value: []byte(`{"type":"paid"}`),
			})
		handle(t, p, message("e1", 1)) // the same record again
		require.Zero(t, tm.sum("idem.conflicts"))

		for outcome, want := range map[string]int{"handled": 2, "duplicate": 2, "dead_letter": 2,
			"skipped": 2, "rescheduled": 0, "fallback": 0} {
			require.Equal(t, want,
				tm.sum(consumed, "idem.outcome="+outcome, "messaging.destination.name=orders",
					"messaging.consumer.group.name=billing", "messaging.system=kafka"), outcome)
		}
		require.Equal(t, 8, tm.sum(consumed))
		require.Equal(t, 2,
			tm.sum("idem.duplicates", "idem.event.type=paid", "idem.verdict=done", "idem.shadow="))
		require.Equal(t, 1, tm.sum("idem.duplicates", "idem.duplicate.cause=copy"))
		require.Equal(t, 1, tm.sum("idem.duplicates", "idem.duplicate.cause=same_record"))
		require.Equal(t, letters.len(), tm.sum("idem.dead_letters"))
		require.Equal(t, 1, tm.sum("idem.dead_letters", "idem.dead_letter.class=failed"))
		require.Equal(t, 1, tm.sum("idem.dead_letters", "idem.dead_letter.class=no-event-id"))
		require.Equal(t, 3, tm.sum("idem.retries", "idem.retry.kind=in_place", "error.type=_OTHER"))
		require.Equal(t, 1, tm.sum("idem.skipped", "idem.skipped.reason=tombstone"))
		require.Equal(t, 1, tm.sum("idem.skipped", "idem.skipped.reason=no_handler"))
		require.EqualValues(t, 2, tm.count("messaging.process.duration", "error.type="),
			"calls that succeeded")
		require.EqualValues(t, 4, tm.count("messaging.process.duration", "error.type=_OTHER"))
		require.Equal(t, 0, tm.sum("idem.handlers.in_flight"))
		require.Equal(t, 1, tm.sum("idem.claims", "idem.verdict=done",
			"idem.store=*memstore.Store"), "the copy in the batch was settled with its leader")
		require.NotZero(t, tm.count("idem.store.operation.duration", "idem.store.operation=claim"))
		require.NotZero(t,
			tm.count("idem.store.operation.duration", "idem.store.operation=complete"))
		require.NotZero(t, tm.count("idem.run.size"))

		other := message("e1", 9)
		other.Value = append(other.Value, ' ')
		handle(t, p, other)
		require.Equal(t, 1, tm.sum("idem.conflicts", "idem.event.type=paid", "idem.verdict=done",
			"messaging.destination.name=orders"))
	})
}

// The equation of the documentation, through batches of all kinds and a whole rewind.
func TestEquation(t *testing.T) {
	for name, register := range map[string]func(*idem.Router){
		"on": func(r *idem.Router) { idem.On(r, "paid", succeed) },
		"onbatch": func(r *idem.Router) {
			idem.OnBatch(r, "paid", func(context.Context, []idem.Event[paid]) error { return nil })
		},
		"poison": func(r *idem.Router) {
			idem.On(r, "paid", func(_ context.Context, e idem.Event[paid]) error {
				if e.Message.Offset%7 == 0 {
					return idem.Permanent(errBoom)
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			tm := newTelemetry(t)
			store, letters := memstore.New(), &sink{}
			r := idem.NewRouter()
			register(r)
			p := tm.processor(r, func(c *idem.Config) { c.Store, c.Producer = store, letters })
			var batch []*idem.Message
			for i := range 300 {
				batch = append(batch, message(fmt.Sprintf("e%d", i%200), int64(i)))
			}
			batch = append(batch, typed("nobody's", "x", 300))
			handle(t, p, batch...)
			handle(t, p, batch...) // a rewind
			requireEquation(t, tm, handledIn(t, store, 200), letters.len(), 602)
		})
	}
}

// handledIn counts the events that the store has recorded as handled.
func handledIn(t *testing.T, store *memstore.Store, ids int) (n int) {
	for i := range ids {
		known, err := store.Inspect(t.Context(),
			dedup.Key{Scope: "billing", Type: "paid", ID: fmt.Sprintf("e%d", i)})
		require.NoError(t, err)
		if len(known) == 1 && known[0].State == dedup.Finished {
			n++
		}
	}
	return n
}

func requireEquation(t *testing.T, tm *telemetry, unique, letters, fetched int) {
	t.Helper()
	deliveries := tm.sum(consumed)
	require.Equal(t, fetched, deliveries)
	skipped := tm.sum(consumed, "idem.outcome=skipped")
	require.Equal(t, letters, tm.sum("idem.dead_letters"))
	require.Equal(t, unique, tm.sum(consumed, "idem.outcome=handled"))
	require.Equal(t, deliveries-skipped-unique-letters, tm.sum("idem.duplicates"))
	require.Equal(t, tm.sum(consumed, "idem.outcome=duplicate"), tm.sum("idem.duplicates"))
}

// G-15: the number of series stays bounded for any input.
func TestSeriesAreBounded_G15(t *testing.T) {
	tm := newTelemetry(t)
	r := idem.NewRouter()
	idem.OnBatch(r, "paid", func(context.Context, []idem.Event[paid]) error { return nil })
	p := tm.processor(r)
	n := int64(0)
	round := func(from, to int) {
		for ; from < to; from += 500 {
			var batch []*idem.Message
			for i := from; i < from+500; i++ {
				n++
				m := message(fmt.Sprintf("e%d", i), n)
				m.Key = fmt.Appendf(nil, "key-%d", i)
				batch = append(batch, m)
				if i%10 == 0 {
					n++
					batch = append(batch,
						typed(fmt.Sprintf("type-%d", i), fmt.Sprintf("e%d", i), n))
				}
			}
			handle(t, p, batch...)
			handle(t, p, batch...)
		}
	}
	round(0, 1000)
	before := tm.size()
	round(1000, 100_000)
	require.Equal(t, before, tm.size())
	require.Equal(t, 100_000, tm.sum(consumed, "idem.outcome=handled"))
	require.Equal(t, 100_000, tm.sum("idem.duplicates"))
}

// A program that has a topic for every customer counts further topics under _OTHER.
func TestLabelsBeyondTheBoundAreOther_G15(t *testing.T) {
	tm := newTelemetry(t)
	for i := range 3000 {
		e := observe.SettledEvent{Group: "billing", Topic: fmt.Sprintf("topic-%d", i)}
		e.Counts[observe.SettledHandled] = 1
		tm.ObserveSettled(t.Context(), e)
	}
	require.Equal(t, 1001, len(tm.series()[consumed])) //nolint:testifylint // a thousand series are no message
	require.Equal(t, 2000, tm.sum(consumed, "messaging.destination.name=_OTHER"))
	require.Equal(t, 3000, tm.sum(consumed))
	for i := range 5000 { // labels without a bounded form
		tm.ObserveDeadLetter(t.Context(), observe.DeadLetterEvent{
			Group: fmt.Sprintf("group-%d", i), Message: message("e", 1),
			Class: idem.Class(fmt.Sprint(i)),
		})
	}
	require.Equal(t, 1501, len(tm.series()["idem.dead_letters"])) //nolint:testifylint // the same
	require.Equal(t, 3500, tm.sum("idem.dead_letters", "otel.metric.overflow=true"))
	require.Equal(t, 5000, tm.sum("idem.dead_letters"))
}

// If the context of a handler ended, error.type comes from the cause.
func TestErrorTypeOfACancelledHandlerIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t)
		r := idem.NewRouter()
		idem.On(r, "paid", func(ctx context.Context, _ idem.Event[paid]) error {
			<-ctx.Done()
			return context.Canceled
		}, idem.Timeout(time.Second), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		handle(t, tm.processor(r), message("e1", 1))
		require.EqualValues(t, 1, tm.count("messaging.process.duration", "error.type=timeout"))
		require.Equal(t, 1, tm.sum("idem.dead_letters", "idem.dead_letter.class=timeout"))
	})
}

// Rule 45: dead letters without their value are counted apart.
func TestDeadLettersWithoutValue_Rule45(t *testing.T) {
	tm := newTelemetry(t)
	for i, omitted := range []bool{true, false, true} {
		tm.ObserveDeadLetter(t.Context(), observe.DeadLetterEvent{
			Group: "billing", Message: message("e1", int64(i)), Class: idem.ClassFailed, Omitted: omitted,
		})
	}
	require.Equal(t, 3, tm.sum("idem.dead_letters"))
	require.Equal(t, 2, tm.sum("idem.dead_letters.omitted"))
	require.Equal(t, 2, tm.sum("idem.dead_letters.omitted", "messaging.consumer.group.name=billing"))
}

func TestStoreDown(t *testing.T) {
	tm := newTelemetry(t)
	for range 2 {
		tm.ObserveStore(t.Context(), observe.StoreEvent{
			Group: "billing", Name: "store *pgstore.Store", Down: true, Err: errBoom,
		})
	}
	require.Equal(t, 2, tm.sum("idem.store.down", "idem.store=*pgstore.Store"), "of two processors")
	for range 2 {
		tm.ObserveStore(t.Context(),
			observe.StoreEvent{Group: "billing", Name: "store *pgstore.Store"})
	}
	require.Equal(t, 0, tm.sum("idem.store.down"))
	require.Equal(t, 2, tm.sum("idem.store.outages"))
}

func TestStoreCalls(t *testing.T) {
	tm := newTelemetry(t)
	e := observe.StoreCallEvent{
		Group: "billing", Store: "*pgstore.Store", Verb: observe.VerbTransaction, Keys: 9,
		Took: time.Second, Takeovers: 2,
	}
	e.Verdicts[dedup.Fresh], e.Verdicts[dedup.Uncertain], e.Verdicts[dedup.Done] = 4, 2, 3
	tm.ObserveStoreCall(t.Context(), e)
	e.Verdicts, e.Err = [dedup.TooOld + 1]uint32{}, dedup.ErrContended
	tm.ObserveStoreCall(t.Context(), e)
	for verdict, want := range map[string]int{"fresh": 4, "uncertain": 2, "done": 3, "none": 9} {
		require.Equal(t, want, tm.sum("idem.claims", "idem.verdict="+verdict), verdict)
	}
	require.Equal(t, 2, tm.sum("idem.claims.takeovers"))
	require.EqualValues(t, 1, tm.count("idem.store.operation.duration", "error.type=contended"))
	require.EqualValues(t, 1, tm.count("idem.store.operation.duration", "error.type="))
}

func TestRetriesByWhere(t *testing.T) {
	tm := newTelemetry(t)
	for _, e := range []observe.RetryEvent{
		{Deferred: true}, {Later: true, Topic: "orders-retry"}, {Later: true}, {Delay: time.Second},
		{Delay: time.Second},
	} {
		e.Group, e.Message, e.Key = "billing", message("e1", 1), dedup.Key{Type: "paid", ID: "e1"}
		tm.ObserveRetry(t.Context(), e)
	}
	for kind, want := range map[string]int{"behind": 1, "topic": 1, "deferred": 1, "in_place": 2} {
		require.Equal(t, want, tm.sum("idem.retries", "idem.retry.kind="+kind), kind)
	}
}

func TestRareEvents(t *testing.T) {
	tm := newTelemetry(t)
	k := dedup.Key{Type: "paid", ID: "e1"}
	tm.ObserveStall(t.Context(),
		observe.StallEvent{Group: "billing", Message: message("e1", 1), Key: k})
	tm.ObserveStall(t.Context(),
		observe.StallEvent{Group: "billing", Message: message("e1", 1), Key: k, Busy: true})
	tm.ObserveLost(t.Context(), observe.LostEvent{Group: "billing", Message: message("e1", 1), Key: k})
	require.Equal(t, 1,
		tm.sum("idem.handler.stalls", "idem.stall.kind=hung", "idem.event.type=paid"))
	require.Equal(t, 1, tm.sum("idem.handler.stalls", "idem.stall.kind=busy"))
	require.Equal(t, 1, tm.sum("idem.claims.lost"))
	e := observe.SettledEvent{Group: "billing", Topic: "orders", Deferred: true}
	e.Counts[observe.SettledHandled] = 3
	tm.ObserveSettled(t.Context(), e)
	require.Equal(t, 3, tm.sum("idem.deferred", "idem.outcome=handled"))
	require.Zero(t, tm.sum(consumed), "they are no deliveries")
}

// Several observers on one meter provider add up their counts.
func TestTwoObservers(t *testing.T) {
	tm := newTelemetry(t)
	second, err := otelidem.New(otelidem.MeterProvider(tm.meters))
	require.NoError(t, err)
	defer second.Close()
	for _, o := range []*otelidem.Observer{tm.Observer, second} {
		r := idem.NewRouter()
		idem.OnBatch(r, "paid", func(context.Context, []idem.Event[paid]) error { return nil })
		p := tm.processor(r, func(c *idem.Config) { c.Observers = []observe.Observer{o} })
		handle(t, p, message("e1", 1), message("e1", 2))
	}
	require.Equal(t, 4, tm.sum(consumed))
	require.Equal(t, 2, tm.sum("idem.duplicates"))
	require.EqualValues(t, 2, tm.count("idem.call.size"))
}

func TestInFlight(t *testing.T) {
	tm := newTelemetry(t)
	r := idem.NewRouter()
	idem.OnBatch(r, "paid", func(_ context.Context, es []idem.Event[paid]) error {
		require.Equal(t, len(es), tm.sum("idem.handlers.in_flight", "idem.event.type=paid",
			"messaging.consumer.group.name=billing"))
		return nil
	}, idem.SameKey())
	handle(t, tm.processor(r), message("e1", 1), message("e2", 2))
	require.Equal(t, 0, tm.sum("idem.handlers.in_flight"))
}

// Many goroutines report during collections.
func TestConcurrently(t *testing.T) {
	tm := newTelemetry(t)
	r := idem.NewRouter()
	idem.On(r, "paid", succeed)
	p := tm.processor(r)
	var wg sync.WaitGroup
	const workers, events = 8, 100
	for w := range workers {
		wg.Go(func() {
			for i := range events {
				m, _ := tm.traced(message(fmt.Sprintf("e%d-%d", w, i), int64(i)), true)
				m.Partition, m.Key = int32(w), nil
				if _, err := p.HandleBatch(t.Context(), []*idem.Message{m, m}); err != nil {
					t.Error(err)
				}
				tm.rebalance("billing", observe.Assigned, int32(w))
				tm.progress("billing", int32(w), 1, i%10 == 9)
				tm.rebalance("billing", observe.Revoked, int32(w))
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			tm.series()
		}
	})
	wg.Wait()
	require.Equal(t, workers*events, tm.sum(consumed, "idem.outcome=handled"))
	require.Equal(t, workers*events, tm.sum("idem.duplicates"))
	require.Equal(t, 0, tm.sum("idem.handlers.in_flight"))
	require.Equal(t, 0, tm.sum("idem.partitions.assigned"))
}

func TestDuplicateAges(t *testing.T) {
	tm := newTelemetry(t)
	for _, e := range []observe.DuplicateEvent{
		{Age: time.Minute}, {Age: -time.Minute}, {SameRecord: true}, {Age: time.Hour, Shadow: true},
	} {
		e.Group, e.Message, e.Key, e.Verdict = "billing", message("e1", 1),
			dedup.Key{Type: "paid", ID: "e1"}, dedup.Done
		tm.ObserveDuplicate(t.Context(), e)
	}
	require.EqualValues(t, 3, tm.count("idem.duplicate.age"))
	require.Equal(t, 3660, tm.sum("idem.duplicate.age"))
	require.Equal(t, 1, tm.sum("idem.duplicates", "idem.shadow=true"))
}
