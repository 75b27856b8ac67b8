package watermillidem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/watermillidem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

type payment struct {
	Amount int `json:"amount"`
}

func msg(i int) *message.Message {
	m := message.NewMessage(fmt.Sprint("uuid-", i), fmt.Appendf(nil, `{"amount":%d}`, i))
	m.Metadata.Set("event-type", "paid")
	return m
}

func processor(t *testing.T, store dedup.Store, register func(*idem.Router)) *idem.Processor {
	t.Helper()
	r := idem.NewRouter(idem.ID(watermillidem.ID()))
	register(r)
	p, err := idem.NewProcessor(r, idem.Config{
		Store: store, Scope: "billing", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), BusyWait: time.Millisecond,
	})
	require.NoError(t, err)
	return p
}

// start runs a router of Watermill with one handler until the end of the test.
func start(t *testing.T, add func(*message.Router, *gochannel.GoChannel)) (pubsub *gochannel.GoChannel) {
	t.Helper()
	pubsub = gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	add(router, pubsub)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
		require.NoError(t, pubsub.Close())
	})
	return pubsub
}

// counter counts events by ID.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counter) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[id]++
	return c.n[id]
}

func (c *counter) all() (events, runs int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		runs += n
	}
	return len(c.n), runs
}

// Each event comes twice; every third fails at first, and Watermill delivers it again.
func TestHandler_Idempotent(t *testing.T) {
	var done, tries counter
	p := processor(t, memstore.New(), func(r *idem.Router) {
		idem.On(r, "paid", func(_ context.Context, e idem.Event[payment]) error {
			if e.Data.Amount%3 == 0 && tries.add(e.ID) == 1 {
				return errors.New("not yet")
			}
			done.add(e.ID)
			return nil
		})
	})
	pubsub := start(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddConsumerHandler("billing", "payments", ps, watermillidem.Handler(p))
	})
	for range 2 {
		for i := range 30 {
			require.NoError(t, pubsub.Publish("payments", msg(i)))
		}
	}
	require.Eventually(t, func() bool { events, _ := done.all(); return events == 30 }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, p.Close())
	_, runs := done.all()
	require.Equal(t, 30, runs)
}

// While another worker has the event the handler waits; the end of the context ends the wait.
func TestHandler_WaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Volatile())
		var runs atomic.Int32
		busy := make(chan struct{})
		register := func(r *idem.Router) {
			idem.On(r, "paid", func(context.Context, idem.Event[payment]) error {
				runs.Add(1)
				<-busy
				return nil
			})
		}
		first, second := processor(t, store, register), processor(t, store, register)
		results := make(chan error, 2)
		go func() { results <- watermillidem.Handler(first)(msg(1)) }()
		synctest.Wait()
		go func() { results <- watermillidem.Handler(second)(msg(1)) }()
		stopped := msg(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stopped.SetContext(ctx)
		require.ErrorIs(t, watermillidem.Handler(second)(stopped), idem.ErrStopping)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, runs.Load())
		close(busy)
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		require.EqualValues(t, 1, runs.Load())
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
	})
}

func TestHandler_Position(t *testing.T) {
	type place struct{}
	var got idem.Message
	p := processor(t, memstore.New(), func(r *idem.Router) {
		idem.On(r, "paid", func(_ context.Context, e idem.Event[payment]) error {
			got = *e.Message
			return nil
		})
	})
	at := watermillidem.Position{Partition: 3, Offset: 17, Time: time.Unix(1700000000, 0), Key: []byte("k")}
	handle := watermillidem.Handler(p, watermillidem.WithPosition(func(ctx context.Context) (watermillidem.Position, bool) {
		v, ok := ctx.Value(place{}).(watermillidem.Position)
		return v, ok
	}))
	require.NoError(t, handle(msg(1)), "without a position")
	require.EqualValues(t, -1, got.Offset)
	m := msg(2)
	m.SetContext(context.WithValue(t.Context(), place{}, at))
	require.NoError(t, handle(m))
	want := idem.Message{Partition: at.Partition, Offset: at.Offset, Time: at.Time, Key: at.Key}
	got.Topic, got.Value, got.Headers = "", nil, nil
	require.Equal(t, want, got)
	require.NoError(t, p.Close())
}

// Without positions, a corrected message with the ID of a dead event is another record. It becomes a
// dead letter, and is not skipped as a repetition of the first one (rule 6).
func TestHandler_CorrectedWithoutPosition_Rule6(t *testing.T) {
	var runs atomic.Int32
	letters := make(letterBox, 10)
	r := idem.NewRouter(idem.ID(watermillidem.ID()))
	idem.On(r, "paid", func(context.Context, idem.Event[payment]) error {
		runs.Add(1)
		return idem.Permanent(errors.New("the amount is wrong"))
	})
	p, err := idem.NewProcessor(r, idem.Config{
		Store: memstore.New(memstore.Volatile()), Scope: "billing", Producer: letters,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	pubsub := start(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddConsumerHandler("billing", "payments", ps, watermillidem.Handler(p))
	})
	corrected := msg(1)
	corrected.Payload = []byte(`{"amount":2}`)
	require.NoError(t, pubsub.Publish("payments", msg(1), corrected))
	require.Eventually(t, func() bool { return len(letters) == 2 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, p.Close())
	require.EqualValues(t, 1, runs.Load())
	values := []string{string((<-letters).Value), string((<-letters).Value)} // the pubsub keeps no order
	require.ElementsMatch(t, []string{`{"amount":1}`, `{"amount":2}`}, values)
}

// letterBox is a producer that keeps dead letters.
type letterBox chan *idem.Message

func (b letterBox) Produce(_ context.Context, msgs ...*idem.Message) error {
	for _, m := range msgs {
		b <- m
	}
	return nil
}

// Messages that come together share calls, and one with an error does not hold up the others.
func TestCollector_Idempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done counter
		var calls atomic.Int32
		p := processor(t, memstore.New(memstore.Volatile()), func(r *idem.Router) {
			idem.OnBatch(r, "paid", func(_ context.Context, all []idem.Event[payment]) error {
				calls.Add(1)
				for _, e := range all {
					if e.Data.Amount == 7 {
						return idem.Permanent(errors.New("never"))
					}
				}
				for _, e := range all {
					done.add(e.ID)
				}
				return nil
			})
		})
		c, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{Max: 50})
		require.NoError(t, err)
		var failed atomic.Int32
		var all sync.WaitGroup
		for range 2 {
			for i := range 100 {
				all.Go(func() {
					if err := c.Handle(msg(i)); err != nil {
						require.ErrorIs(t, err, idem.ErrNoProducer)
						require.Equal(t, 7, i)
						failed.Add(1)
					}
				})
			}
		}
		all.Wait()
		require.EqualValues(t, 2, failed.Load())
		events, runs := done.all()
		require.Equal(t, 99, events)
		require.Equal(t, 99, runs)
		require.Less(t, calls.Load(), int32(60))
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Handle(msg(200)), idem.ErrStopping)
		require.NoError(t, p.Close())
	})
}

// counting is a processor with a handler that counts its runs.
func counting(t *testing.T, store dedup.Store, runs *counter) *idem.Processor {
	t.Helper()
	return processor(t, store, func(r *idem.Router) {
		idem.On(r, "paid", func(_ context.Context, e idem.Event[payment]) error {
			runs.add(e.ID)
			return nil
		})
	})
}

// A message that another worker holds does not hold up those that come after it (rule 9).
func TestCollector_WaitsAlone_Rule9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Volatile())
		busy := make(chan struct{})
		other := processor(t, store, func(r *idem.Router) {
			idem.On(r, "paid", func(context.Context, idem.Event[payment]) error {
				<-busy
				return nil
			})
		})
		held := make(chan error, 2)
		go func() { held <- watermillidem.Handler(other)(msg(1)) }()
		synctest.Wait()
		var runs counter
		p := counting(t, store, &runs)
		collector, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{})
		require.NoError(t, err)
		go func() { held <- collector.Handle(msg(1)) }()
		synctest.Wait()
		passed := make(chan error, 1)
		go func() { passed <- collector.Handle(msg(2)) }()
		time.Sleep(time.Minute)
		through := len(passed)
		close(busy)
		require.Equal(t, 1, through)
		require.NoError(t, <-passed)
		require.NoError(t, <-held)
		require.NoError(t, <-held)
		_, total := runs.all()
		require.Equal(t, 1, total, "the event of the other worker is a duplicate")
		require.NoError(t, collector.Close())
		require.NoError(t, p.Close())
		require.NoError(t, other.Close())
	})
}

// A message that waits for another worker is given up at the end of its context: another process may
// have its partition (K-11).
func TestCollector_WaitEndsWithTheMessage_K11(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Volatile())
		fail := make(chan struct{})
		other := processor(t, store, func(r *idem.Router) {
			idem.On(r, "paid", func(context.Context, idem.Event[payment]) error {
				<-fail
				return idem.Permanent(errors.New("refused")) // without a producer: the event is free again
			})
		})
		held := make(chan error, 1)
		go func() { held <- watermillidem.Handler(other)(msg(1)) }()
		synctest.Wait()
		var runs counter
		p := counting(t, store, &runs)
		collector, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{})
		require.NoError(t, err)
		waits := msg(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waits.SetContext(ctx)
		require.ErrorIs(t, collector.Handle(waits), idem.ErrStopping)
		synctest.Wait()
		close(fail)
		require.ErrorIs(t, <-held, idem.ErrNoProducer)
		time.Sleep(time.Minute)
		_, total := runs.all()
		require.NoError(t, collector.Close())
		require.NoError(t, p.Close())
		require.NoError(t, other.Close())
		require.Zero(t, total, "the handler ran for a message that was given up")
	})
}

// A message whose context ends before its batch begins is not handled (K-11).
func TestCollector_EndedBeforeTheBatch_K11(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs counter
		p := counting(t, memstore.New(memstore.Volatile()), &runs)
		collector, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{Wait: time.Minute})
		require.NoError(t, err)
		lost := msg(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lost.SetContext(ctx)
		require.ErrorIs(t, collector.Handle(lost), idem.ErrStopping)
		require.NoError(t, collector.Handle(msg(2)), "the same batch goes on")
		require.NoError(t, collector.Close())
		require.NoError(t, p.Close())
		require.Equal(t, map[string]int{"uuid-2": 1}, runs.n)
	})
}

// A message that comes alone is handled at once, unless Wait says otherwise. Messages that come
// within Wait share a call.
func TestCollector_Wait(t *testing.T) {
	for _, c := range []struct {
		wait, took time.Duration
		calls      int32
	}{{0, 0, 2}, {20 * time.Millisecond, 20 * time.Millisecond, 1}} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int32
			p := processor(t, memstore.New(memstore.Volatile()), func(r *idem.Router) {
				idem.OnBatch(r, "paid", func(context.Context, []idem.Event[payment]) error {
					calls.Add(1)
					return nil
				})
			})
			collector, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{Wait: c.wait})
			require.NoError(t, err)
			began := time.Now()
			errs, took := make([]error, 2), make([]time.Duration, 2)
			var both sync.WaitGroup
			for i := range errs {
				both.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					errs[i] = collector.Handle(msg(i))
					took[i] = time.Since(began)
				})
			}
			both.Wait()
			require.NoError(t, errors.Join(errs...))
			require.Equal(t, c.took, took[0])
			require.Equal(t, c.calls, calls.Load())
			require.NoError(t, collector.Close())
			require.NoError(t, p.Close())
		})
	}
}

// Close ends a batch under way in order.
func TestCollector_Close(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := processor(t, memstore.New(memstore.Volatile()), func(r *idem.Router) {
			idem.On(r, "paid", func(ctx context.Context, _ idem.Event[payment]) error {
				<-ctx.Done()
				return ctx.Err()
			})
		})
		c, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{})
		require.NoError(t, err)
		results := make(chan error, 2)
		for i := range 2 {
			go func() { results <- c.Handle(msg(i)) }()
		}
		time.Sleep(time.Second)
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-results, idem.ErrStopping)
		require.ErrorIs(t, <-results, idem.ErrStopping)
		require.NoError(t, p.Close())
	})
}

func TestCollector_Mistakes(t *testing.T) {
	_, err := watermillidem.NewCollector(nil, watermillidem.CollectorConfig{})
	require.ErrorContains(t, err, "processor")
	p := processor(t, memstore.New(), func(r *idem.Router) {
		idem.On(r, "paid", func(context.Context, idem.Event[payment]) error { return nil })
	})
	defer p.Close()
	_, err = watermillidem.NewCollector(p, watermillidem.CollectorConfig{Max: -1})
	require.ErrorContains(t, err, "Max is -1")
}

// A duplicate publishes the messages of the first run, under the same UUIDs.
func TestMiddleware_Idempotent(t *testing.T) {
	store := memstore.New(memstore.Volatile())
	guard := dedup.NewGuard(store, dedup.GuardConfig{Retention: time.Hour})
	var runs counter
	out := make(chan *message.Message, 100)
	pubsub := start(t, func(r *message.Router, ps *gochannel.GoChannel) {
		h := r.AddHandler("billing", "payments", ps, "receipts", ps, func(m *message.Message) ([]*message.Message, error) {
			if runs.add(m.UUID) == 1 && m.UUID == "uuid-5" {
				return nil, errors.New("not yet")
			}
			receipt := message.NewMessage(watermill.NewUUID(), message.Payload("receipt of "+m.UUID))
			receipt.Metadata.Set("event-type", "receipt")
			return []*message.Message{receipt}, nil
		})
		h.AddMiddleware(watermillidem.Middleware(guard, nil))
		r.AddConsumerHandler("receipts", "receipts", ps, func(m *message.Message) error {
			out <- m
			return nil
		})
	})
	for range 2 {
		for i := range 10 {
			require.NoError(t, pubsub.Publish("payments", msg(i)))
		}
	}
	seen := make(map[string][]string)
	for range 20 {
		select {
		case m := <-out:
			require.Equal(t, "receipt", m.Metadata.Get("event-type"))
			seen[string(m.Payload)] = append(seen[string(m.Payload)], m.UUID)
		case <-time.After(30 * time.Second):
			require.FailNow(t, "too few receipts", "%v", seen)
		}
	}
	require.Len(t, seen, 10)
	for receipt, uuids := range seen {
		require.Equal(t, []string{uuids[0], uuids[0]}, uuids, receipt)
	}
	_, total := runs.all()
	require.Equal(t, 11, total, "one of them failed once")
	guard.Close()
}

// The stored messages are those of the handler, byte for byte: metadata may have headers of Kafka,
// which are bytes. The first run keeps the contexts that the handler gave its messages.
func TestMiddleware_Bytes(t *testing.T) {
	guard := dedup.NewGuard(memstore.New(memstore.Volatile()), dedup.GuardConfig{Retention: time.Hour})
	defer guard.Close()
	type span struct{}
	key := func(*message.Message) (dedup.Key, error) { return dedup.Key{Scope: "billing", ID: "1"}, nil }
	handle := watermillidem.Middleware(guard, key)(func(m *message.Message) ([]*message.Message, error) {
		out := message.NewMessage("\xfe", []byte("\xff\x00"))
		out.Metadata.Set("schema", "\xff\x00")
		out.Metadata.Set("\xfd", "name")
		out.Metadata.Set("plain", "text")
		out.SetContext(context.WithValue(m.Context(), span{}, "parent"))
		return []*message.Message{out}, nil
	})
	for run := range 2 {
		out, err := handle(msg(1))
		require.NoError(t, err)
		require.Len(t, out, 1)
		require.Equal(t, "\xfe", out[0].UUID)
		require.Equal(t, message.Metadata{"schema": "\xff\x00", "\xfd": "name", "plain": "text"}, out[0].Metadata)
		require.Equal(t, message.Payload("\xff\x00"), out[0].Payload)
		require.Equal(t, run == 0, out[0].Context().Value(span{}) != nil)
		require.NoError(t, out[0].Context().Err(), "they are still to be published")
	}
}

func TestMiddleware_Mistakes(t *testing.T) {
	guard := dedup.NewGuard(memstore.New(), dedup.GuardConfig{})
	defer guard.Close()
	handle := watermillidem.Middleware(guard, nil)(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	_, err := handle(msg(1))
	require.ErrorContains(t, err, "handler name")
	failing := watermillidem.Middleware(guard, func(*message.Message) (dedup.Key, error) {
		return dedup.Key{}, errors.New("no key")
	})
	_, err = failing(func(*message.Message) ([]*message.Message, error) { panic("must not run") })(msg(1))
	require.ErrorContains(t, err, "no key")
}
