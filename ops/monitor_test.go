package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

var (
	_ observe.RebalanceObserver      = (*Monitor)(nil)
	_ observe.ProgressObserver       = (*Monitor)(nil)
	_ observe.PartitionStallObserver = (*Monitor)(nil)
)

// world is a processor with a monitor, and with a store in memory.
func world(t testing.TB, m *Monitor, router *idem.Router) *idem.Processor {
	t.Helper()
	p, err := idem.NewProcessor(router, idem.Config{
		Store: memstore.New(memstore.Volatile()), Scope: "billing", Group: "billing", Observers: []observe.Observer{m}, Producer: drain{},
		Logger:          quietConfig().Logger,
		DeadLetterTopic: func(topic string) string { return topic + ".dlq" },
	})
	require.NoError(t, err)
	return p
}

type drain struct{}

func (drain) Produce(context.Context, ...*idem.Message) error { return nil }

func record(offset int64, typ, id string) *idem.Message {
	return &idem.Message{
		Topic: "orders", Partition: 1, Offset: offset, Value: []byte(`{}`), Time: time.Now(),
		Headers: []idem.Header{{Key: "event_id", Value: []byte(id)}, {Key: "event_type", Value: []byte(typ)}},
	}
}

// The counts on the page are those of a real processor.
func TestMonitor_CountsWhatHappens(t *testing.T) {
	m := NewMonitor()
	router := idem.NewRouter(idem.ID(idem.FromHeader("event_id")), idem.Type(idem.FromHeader("event_type")), idem.Retention(time.Hour))
	idem.On(router, "paid", func(context.Context, idem.Event[map[string]any]) error { return nil })
	idem.On(router, "bad", func(context.Context, idem.Event[map[string]any]) error {
		return idem.Permanent(errors.New("card declined"))
	})
	failures := 2
	idem.On(router, "shaky", func(context.Context, idem.Event[map[string]any]) error {
		if failures--; failures >= 0 {
			return errors.New("no answer")
		}
		return nil
	}, idem.Retry(idem.RetryPolicy{MaxAttempts: 5, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, InPlace: time.Minute}))
	p := world(t, m, router)
	for _, msg := range []*idem.Message{
		record(1, "paid", "a"), record(2, "paid", "b"), record(1, "paid", "a"), record(3, "paid", "a"), record(4, "bad", "c"), record(5, "shaky", "d"),
		record(6, "unknown", "e"), {Topic: "orders", Partition: 1, Offset: 7, Headers: record(0, "paid", "f").Headers}, record(2, "paid", "b"),
	} {
		require.NoError(t, p.Handle(t.Context(), msg))
	}
	c := m.totals()
	require.Equal(t, counts{
		kindDelivery: 9, kindHandled: 3, kindDuplicate: 3, kindSame: 2, kindFailed: 3, kindRetry: 2, kindDeadLetter: 1, kindSkipped: 2,
	}, c)
	require.EqualValues(t, 1, c.copies())

	failed := m.failures.byID("d")
	require.Len(t, failed, 1, "the last of an event")
	require.Equal(t, "no answer", failed[0].Error)
	require.Equal(t, 2, failed[0].Attempt)
	require.True(t, m.failures.byID("c")[0].Dead)
	require.Empty(t, m.failures.byID("a"))
	running, more := m.runningCalls("billing")
	require.Empty(t, running)
	require.Zero(t, more)
}

func TestMonitor_Running(t *testing.T) {
	m := NewMonitor()
	begun, release := make(chan struct{}), make(chan struct{})
	router := idem.NewRouter(idem.ID(idem.FromHeader("event_id")), idem.Type(idem.FromHeader("event_type")), idem.Retention(time.Hour))
	idem.On(router, "slow", func(context.Context, idem.Event[map[string]any]) error {
		close(begun)
		<-release
		return nil
	})
	p := world(t, m, router)
	done := make(chan error)
	go func() { done <- p.Handle(context.Background(), record(9, "slow", "x")) }()
	<-begun
	running, _ := m.runningCalls("billing")
	require.Len(t, running, 1)
	require.Equal(t, "x", running[0].Key.ID)
	require.EqualValues(t, 9, running[0].Offset)
	other, _ := m.runningCalls("another group")
	require.Empty(t, other)
	s := serve(t, quietConfig(), sources{monitor: m})
	require.Contains(t, s.get("claims").body, "orders/1/9")
	close(release)
	require.NoError(t, <-done)
	require.Contains(t, s.get("claims").body, "No handler runs")
}

// Time passes: old counts leave the rings, the totals stay, and the present second is not drawn.
func TestMonitor_Time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMonitor()
		settle := func(n int) {
			e := observe.SettledEvent{Group: "billing"}
			e.Counts[observe.SettledHandled] = n
			m.ObserveSettled(t.Context(), e)
		}
		settle(5)
		require.Zero(t, m.activity(rangeShort).Rate)
		time.Sleep(time.Second)
		a := m.activity(rangeShort)
		require.InDelta(t, 0.5, a.Rate, 1e-9)
		require.EqualValues(t, 5, a.Recent[kindDelivery])
		last := a.Charts[0].Series[0].Values
		require.Len(t, last, keptSeconds/5)
		require.InDelta(t, 1, last[len(last)-1], 1e-9, "five in five seconds")
		time.Sleep(20 * time.Second)
		settle(1)
		time.Sleep(keptSeconds*time.Second - 25*time.Second)
		require.EqualValues(t, 6, m.activity(rangeShort).Recent[kindDelivery])
		time.Sleep(30 * time.Second)
		a = m.activity(rangeShort)
		require.Zero(t, a.Recent[kindDelivery])
		require.EqualValues(t, 6, a.Total[kindDelivery])
		require.Equal(t, 6, sumOf(m.activity(rangeHour).Charts[0].Series[0].Values, 60))
		time.Sleep(2 * time.Hour)
		require.Zero(t, sumOf(m.activity(rangeHour).Charts[0].Series[0].Values, 60))
		require.Equal(t, 6, sumOf(m.activity(rangeLong).Charts[0].Series[0].Values, 300))
		time.Sleep(24 * time.Hour)
		require.Zero(t, sumOf(m.activity(rangeLong).Charts[0].Series[0].Values, 300))
	})
}

func sumOf(rates []float64, seconds float64) int { return int(sum(rates)*seconds + 0.5) }

func TestMonitor_Partitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, ctx := NewMonitor(), t.Context()
		m.ObserveRebalance(ctx, observe.RebalanceEvent{Group: "billing", Kind: observe.Assigned, Partitions: map[string][]int32{"orders": {0, 1}}})
		m.ObserveRebalance(ctx, observe.RebalanceEvent{Group: "mails", Kind: observe.Assigned, Partitions: map[string][]int32{"orders": {0}}})
		m.ObserveProgress(ctx, observe.ProgressEvent{Group: "billing", Topic: "orders", Partition: 0, Next: 90, HighWater: 100, Pending: 3})
		m.ObserveProgress(ctx, observe.ProgressEvent{Group: "billing", Topic: "orders", Partition: 1, Next: -1, Begin: -1, HighWater: 7})
		lag, assigned, _ := m.parts.sum("")
		require.EqualValues(t, 10, lag)
		require.Equal(t, 3, assigned)
		m.ObservePartitionStall(ctx, observe.PartitionStallEvent{Group: "billing", Topic: "orders", Partition: 0, For: time.Minute})
		all, _ := m.parts.list("billing")
		require.Len(t, all, 2)
		require.Equal(t, time.Minute, all[0].Stalled)
		require.EqualValues(t, -1, all[1].Lag)
		m.ObserveRebalance(ctx, observe.RebalanceEvent{Group: "billing", Kind: observe.Lost, Partitions: map[string][]int32{"orders": {0}}})
		all, _ = m.parts.list("")
		require.Len(t, all, 2, "the same partition of another group stays")
		lag, _, _ = m.parts.sum("billing")
		require.Zero(t, lag)
		require.Equal(t, "1 partition lost", m.notices.list(1)[0].Title)
		m.ObserveProgress(ctx, observe.ProgressEvent{Group: "billing", Topic: "orders", Partition: 1, Next: 5, HighWater: 7, Last: true})
		_, assigned, _ = m.parts.sum("billing")
		require.Zero(t, assigned)
	})
}

// The end of a consumer ends the notice of a missing topic too, so the page does not say that the
// topic exists.
func TestMonitor_MissingTopic(t *testing.T) {
	m, ctx := NewMonitor(), t.Context()
	latest := func() notice { return m.notices.list(1)[0] }
	m.ObserveTopic(ctx, observe.TopicEvent{Topic: "payments", Missing: true})
	require.Equal(t, "Topic payments is missing", latest().Title)
	require.Equal(t, "it must not be read, or was deleted", latest().Text)
	m.ObserveTopic(ctx, observe.TopicEvent{Topic: "payments"})
	require.Equal(t, "Topic payments is no longer missing", latest().Title)
	require.Equal(t, "it can be read again, or its consumer has ended", latest().Text)
}

// The memory of a monitor is bounded for all events (G-15).
func TestMonitor_Bounds(t *testing.T) {
	m, ctx := NewMonitor(), t.Context()
	long := strings.Repeat("x", 1<<20)
	for i := range 3 * maxPartitions {
		m.ObserveProgress(ctx, observe.ProgressEvent{Topic: "t", Partition: int32(i), Next: 1, HighWater: 2})
	}
	for i := range 10_000 {
		key := dedup.Key{Scope: "s", Type: "t", ID: fmt.Sprint("event-", i)}
		m.ObserveRetry(ctx, observe.RetryEvent{Key: key, Err: errors.New(long)})
		m.ObserveDeadLetter(ctx, observe.DeadLetterEvent{Key: key, Err: errors.New(long)})
		if i < 100 {
			m.ObserveTopic(ctx, observe.TopicEvent{Topic: fmt.Sprint(i) + long, Missing: true})
			m.ObserveStall(ctx, observe.StallEvent{Key: dedup.Key{Type: long, ID: fmt.Sprint(i) + long}})
			m.ObserveStore(ctx, observe.StoreEvent{Name: fmt.Sprint(i), Down: true, Err: errors.New(long)})
		}
	}
	all, more := m.parts.list("")
	require.Len(t, all, maxPartitions)
	require.Positive(t, more)
	n := 0
	for i := range m.failures.shards {
		s := &m.failures.shards[i]
		n += s.used
		for _, f := range s.list[:s.used] {
			require.LessOrEqual(t, len(f.Error), maxErrorText+4)
		}
	}
	require.LessOrEqual(t, n, failureShards*failureSlots)
	notices := m.notices.list(1 << 20)
	require.Len(t, notices, maxNotices)
	for _, x := range notices {
		require.LessOrEqual(t, len(x.Title)+len(x.Text), 3*maxErrorText)
		require.LessOrEqual(t, len(x.subject), maxErrorText+4)
	}
}

func TestRing_ASlotIsUsedAgain(t *testing.T) {
	r := newRing(3)
	r.add(1, kindHandled, 5)
	r.setLag(1, 7)
	r.add(4, kindHandled, 1)
	last := r.last(4, 3)
	require.EqualValues(t, 1, last[2].counts[kindHandled])
	require.True(t, last[2].noLag)
	require.Zero(t, last[0].counts[kindHandled])
	r.add(1, kindHandled, 9) // it came late
	require.EqualValues(t, 1, r.last(4, 1)[0].counts[kindHandled])
}

// So many calls are remembered of those that do not return; the others are counted, and forgotten
// when they do.
func TestMonitor_CallsAreBounded(t *testing.T) {
	m := NewMonitor()
	const calls = callsInShard + 20
	begun, release := make(chan struct{}, calls), make(chan struct{})
	router := idem.NewRouter(idem.ID(idem.FromHeader("event_id")), idem.Type(idem.FromHeader("event_type")), idem.Retention(time.Hour))
	idem.On(router, "slow", func(context.Context, idem.Event[map[string]any]) error {
		begun <- struct{}{}
		<-release
		return nil
	})
	p := world(t, m, router)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() { _ = p.Handle(context.Background(), record(int64(i)*callShards, "slow", fmt.Sprint(i))) })
	}
	for range calls {
		<-begun
	}
	running, more := m.runningCalls("billing")
	require.Len(t, running, maxRunning)
	require.Equal(t, calls-maxRunning, more)
	n := 0
	for i := range m.calls.shards {
		n += len(m.calls.shards[i].all)
	}
	require.Equal(t, callsInShard, n)
	close(release)
	wg.Wait()
	running, more = m.runningCalls("")
	require.Empty(t, running)
	require.Zero(t, more)
}

func TestNotices_RepeatsAreOne(t *testing.T) {
	m := NewMonitor()
	for range 50 {
		m.ObserveCommit(t.Context(), observe.CommitEvent{Err: errors.New("not the coordinator")})
	}
	m.ObserveCommit(t.Context(), observe.CommitEvent{})
	require.Len(t, m.notices.list(10), 1)
	require.Equal(t, 50, m.notices.list(1)[0].Times)
}

func TestMonitor_Race(t *testing.T) {
	m := NewMonitor()
	s := serve(t, quietConfig(), sources{monitor: m})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 300 {
				everything(m, i, j)
			}
		})
	}
	for range 3 {
		for _, page := range []string{"", "activity", "partitions", "claims", "event?id=e-1"} {
			require.Equal(t, 200, s.get(page).status)
		}
	}
	wg.Wait()
	require.EqualValues(t, 4*300*3, m.totals()[kindDelivery])
}

func everything(m *Monitor, i, j int) {
	ctx, key := context.Background(), dedup.Key{Scope: "s", Type: "t", ID: fmt.Sprint("e-", j%40)}
	e := observe.SettledEvent{Group: "billing", Topic: "t", Partition: int32(i)}
	e.Counts[observe.SettledHandled], e.Counts[observe.SettledDuplicate] = 2, 1
	m.ObserveSettled(ctx, e)
	m.ObserveDuplicate(ctx, observe.DuplicateEvent{Key: key, SameRecord: true, Age: time.Second})
	m.ObserveRetry(ctx, observe.RetryEvent{Key: key, Err: errors.New("x")})
	m.ObserveDeadLetter(ctx, observe.DeadLetterEvent{Key: key, Err: errors.New("x")})
	m.ObserveProgress(ctx, observe.ProgressEvent{Group: "billing", Topic: "t", Partition: int32(i), Next: int64(j), HighWater: 1000})
	m.ObserveRebalance(ctx, observe.RebalanceEvent{Group: "billing", Kind: observe.RebalanceKind(j % 3), Partitions: map[string][]int32{"t": {int32(i)}}})
	m.ObserveCommit(ctx, observe.CommitEvent{Err: errors.New("x")})
	m.ObserveLost(ctx, observe.LostEvent{Key: key})
}

func BenchmarkMonitor_Settled(b *testing.B) {
	m := NewMonitor()
	e := observe.SettledEvent{Group: "billing"}
	e.Counts[observe.SettledHandled] = 200
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.ObserveSettled(context.Background(), e)
		}
	})
}

func BenchmarkMonitor_Duplicate(b *testing.B) {
	m := NewMonitor()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.ObserveDuplicate(context.Background(), observe.DuplicateEvent{SameRecord: true, Age: time.Second})
		}
	})
}

func BenchmarkMonitor_Retry(b *testing.B) {
	m, err := NewMonitor(), errors.New("post: 503 Service Unavailable")
	keys := make([]dedup.Key, 1024)
	for i := range keys {
		keys[i] = dedup.Key{Scope: "billing", Type: "order.paid", ID: fmt.Sprint("order-", i)}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m.ObserveRetry(context.Background(), observe.RetryEvent{Key: keys[i%len(keys)], Err: err})
	}
}

// BenchmarkMonitor_Handle is an event through a whole processor, without a monitor and with one.
func BenchmarkMonitor_Handle(b *testing.B) {
	for name, observers := range map[string][]observe.Observer{"without": nil, "with": {NewMonitor()}} {
		b.Run(name, func(b *testing.B) {
			router := idem.NewRouter(idem.ID(idem.FromHeader("event_id")), idem.Type(idem.FromHeader("event_type")), idem.Retention(time.Hour))
			idem.On(router, "paid", func(context.Context, idem.Event[map[string]any]) error { return nil })
			p, err := idem.NewProcessor(router, idem.Config{
				Store: memstore.New(memstore.Volatile()), Scope: "billing", Group: "billing", Observers: observers, Producer: drain{},
				DeadLetterTopic: func(topic string) string { return topic + ".dlq" },
			})
			require.NoError(b, err)
			i := int64(0)
			for b.Loop() {
				i++
				if err := p.Handle(context.Background(), record(i, "paid", fmt.Sprint(i))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
