package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// fake is a client with events that a test gives.
type fake struct {
	events chan any // kafka.Event, or a func that runs within Poll

	mu        sync.Mutex
	rebalance kafka.RebalanceCb
	committed map[int32]int64
	refuse    error // the answer to commits
	lost      bool
	paused    map[int32]bool
	full      chan struct{} // closed by the first Pause
	once      sync.Once
	closed    bool
}

func newFake() *fake {
	return &fake{
		events: make(chan any, 10_000), committed: make(map[int32]int64), paused: make(map[int32]bool),
		full: make(chan struct{}),
	}
}

func (f *fake) SubscribeTopics(_ []string, cb kafka.RebalanceCb) error {
	f.rebalance = cb
	return nil
}

func (f *fake) Poll(timeoutMs int) kafka.Event {
	select {
	case e := <-f.events:
		switch e := e.(type) {
		case func():
			e()
		case kafka.Event:
			return e
		}
	case <-time.After(time.Duration(timeoutMs) * time.Millisecond):
	}
	return nil
}

func (f *fake) CommitOffsets(offsets []kafka.TopicPartition) ([]kafka.TopicPartition, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	for _, o := range offsets {
		f.committed[o.Partition] = int64(o.Offset)
	}
	return offsets, nil
}

func (f *fake) Pause(p []kafka.TopicPartition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paused[p[0].Partition] = true
	f.once.Do(func() { close(f.full) })
	return nil
}

func (f *fake) Resume(p []kafka.TopicPartition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range p {
		f.paused[at.Partition] = false
	}
	return nil
}

func (f *fake) AssignmentLost() bool { return f.lost }

func (f *fake) Close() error {
	f.closed = true
	return nil
}

func (f *fake) offset(partition int32) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.committed[partition]
}

var topic = "payments"

func (f *fake) assign(partitions ...int32) {
	f.events <- func() { _ = f.rebalance(nil, kafka.AssignedPartitions{Partitions: places(partitions)}) }
}

func (f *fake) revoke(partitions ...int32) {
	f.events <- func() { _ = f.rebalance(nil, kafka.RevokedPartitions{Partitions: places(partitions)}) }
}

// handled waits until Poll has run all functions that were given before.
func (f *fake) handled() {
	done := make(chan struct{})
	f.events <- func() { close(done) }
	<-done
}

func places(partitions []int32) (all []kafka.TopicPartition) {
	for _, p := range partitions {
		all = append(all, kafka.TopicPartition{Topic: &topic, Partition: p})
	}
	return all
}

func (f *fake) record(partition int32, offset int64, id string) {
	f.events <- &kafka.Message{
		TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: partition, Offset: kafka.Offset(offset)},
		Value:          fmt.Appendf(nil, `{"event_id":%q,"type":"payment.completed","order_id":1}`, id),
	}
}

// consume runs a loop until the test ends it.
func consume(t *testing.T, f *fake, store dedup.Store, lanes lane.Config, pay func(ctx context.Context, id string) error) (end func() error) {
	t.Helper()
	end, _ = start(t, f, store, lanes, pay)
	return end
}

// start is consume. wait returns the error of a loop that ends by itself.
func start(t *testing.T, f *fake, store dedup.Store, lanes lane.Config, pay func(ctx context.Context, id string) error) (end, wait func() error) {
	t.Helper()
	router := idem.NewRouter()
	idem.On(router, "payment.completed", func(ctx context.Context, e idem.Event[Payment]) error { return pay(ctx, e.ID) })
	log := slog.New(slog.DiscardHandler)
	p, err := idem.NewProcessor(router, idem.Config{Store: store, Scope: "orders", Logger: log, Grace: 3 * time.Second})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	upkeep, err := runner.NewUpkeep(p, runner.UpkeepConfig{Topics: []string{topic}, Logger: log})
	require.NoError(t, err)
	l := &loop{client: f, processor: p, upkeep: upkeep, lanes: lanes, log: log}
	go func() { ended <- l.run(ctx, []string{topic}) }()
	wait = sync.OnceValue(func() error { return errors.Join(<-ended, p.Close()) })
	end = func() error {
		stop()
		return wait()
	}
	t.Cleanup(func() { _ = end() })
	return end, wait
}

func TestLoop_CommitsSettledRecords(t *testing.T) {
	f := newFake()
	var mu sync.Mutex
	runs := make(map[string]int)
	pay := func(ctx context.Context, id string) error {
		select {
		case <-f.full: // the lanes are full, and Pause was called
		case <-ctx.Done():
			return ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		runs[id]++
		return nil
	}
	store := memstore.New(memstore.Volatile())
	end := consume(t, f, store, lane.Config{Lanes: 4, Queue: 8}, pay)
	f.assign(0, 1)
	for i := range int64(200) {
		f.record(0, i, fmt.Sprint(i))
		f.record(1, i, fmt.Sprint(i)) // a copy
	}
	require.Eventually(t, func() bool { return f.offset(0) == 200 && f.offset(1) == 200 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, end())
	require.True(t, f.closed)
	require.Len(t, runs, 200)
	for id, n := range runs {
		require.Equal(t, 1, n, id)
	}
	require.False(t, f.paused[0] || f.paused[1])
}

// A partition is revoked while it is paused, and comes back later. librdkafka does not end a pause at
// a rebalance, so the partition would stand still.
func TestLoop_PausedPartitionComesBack(t *testing.T) {
	f := newFake()
	free := make(chan struct{})
	end := consume(t, f, memstore.New(memstore.Volatile()), lane.Config{Lanes: 1, Queue: 8},
		func(context.Context, string) error {
			<-free
			return nil
		})
	f.assign(0)
	for i := range int64(20) {
		f.record(0, i, fmt.Sprint(i))
	}
	<-f.full
	f.mu.Lock()
	require.True(t, f.paused[0])
	f.mu.Unlock()
	f.revoke(0)
	close(free)
	f.assign(0)
	f.handled()
	f.mu.Lock()
	require.False(t, f.paused[0])
	f.mu.Unlock()
	require.NoError(t, end())
}

// Rule 19 of any loop: no offset is committed while its record may still be in work.
func TestLoop_RevokeWaitsForHandlers(t *testing.T) {
	f := newFake()
	began, free := make(chan struct{}), make(chan struct{})
	end := consume(t, f, memstore.New(memstore.Volatile()), lane.Config{}, func(context.Context, string) error {
		close(began)
		<-free
		return nil
	})
	f.assign(0)
	f.record(0, 7, "a")
	<-began
	f.revoke(0)
	f.record(0, 8, "b") // of a partition that has gone
	require.Zero(t, f.offset(0))
	close(free)
	require.Eventually(t, func() bool { return f.offset(0) == 8 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, end())
	require.EqualValues(t, 8, f.offset(0))
}

func TestLoop_LostPartitionIsNotCommitted(t *testing.T) {
	f := newFake()
	began := make(chan struct{})
	var cause error
	end := consume(t, f, memstore.New(memstore.Volatile()), lane.Config{}, func(ctx context.Context, _ string) error {
		close(began)
		<-ctx.Done()
		cause = context.Cause(ctx)
		return ctx.Err()
	})
	f.assign(0)
	f.record(0, 7, "a")
	<-began
	f.lost = true
	f.revoke(0)
	f.handled() // an end before that would commit
	require.NoError(t, end())
	require.ErrorIs(t, cause, idem.ErrPartitionLost)
	require.Zero(t, f.offset(0))
}

func TestLoop_RefusedCommitIsTriedAgain(t *testing.T) {
	f := newFake()
	f.refuse = kafka.NewError(kafka.ErrRebalanceInProgress, "", false)
	ran := make(chan struct{})
	end := consume(t, f, memstore.New(memstore.Volatile()), lane.Config{}, func(context.Context, string) error {
		close(ran)
		return nil
	})
	f.assign(0)
	f.record(0, 7, "a")
	<-ran
	require.Zero(t, f.offset(0))
	f.mu.Lock()
	f.refuse = nil
	f.mu.Unlock()
	require.Eventually(t, func() bool { return f.offset(0) == 8 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, end())
}

func TestLoop_Ends(t *testing.T) {
	t.Run("fatal error of the client", func(t *testing.T) {
		f := newFake()
		_, wait := start(t, f, memstore.New(memstore.Volatile()), lane.Config{}, nil)
		f.events <- kafka.NewError(kafka.ErrFatal, "fenced", true)
		require.ErrorContains(t, wait(), "fenced")
		require.True(t, f.closed)
	})
	t.Run("dead letter without a producer", func(t *testing.T) {
		f := newFake()
		_, wait := start(t, f, memstore.New(memstore.Volatile()), lane.Config{}, nil)
		f.assign(0)
		f.events <- &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic}, Value: []byte("no JSON")}
		require.ErrorIs(t, wait(), idem.ErrNoProducer)
		require.Zero(t, f.offset(0))
	})
}

// A partition counts as idle after its end was read and all its records are settled.
func TestLoop_Idle(t *testing.T) {
	router := idem.NewRouter()
	idem.On(router, "payment.completed", func(context.Context, idem.Event[Payment]) error { return nil })
	p, err := idem.NewProcessor(router, idem.Config{
		Store: memstore.New(memstore.Volatile()), Scope: "orders", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer p.Close()
	a := &assignment{Partition: lane.New(p, topic, 3, lane.Config{}), committed: 7}
	l := &loop{assigned: map[place]*assignment{{topic, 3}: a}}
	require.Empty(t, l.idle(), "the end is not known")
	a.atEnd = true
	require.Equal(t, []dedup.Progress{{Topic: topic, Partition: 3, Next: 7}}, l.idle())
	require.NoError(t, a.Close(t.Context(), nil))
}
