package watermill

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/watermillidem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// part is a part of the adapter. handler returns a handler and its end. The handler settles each
// message, and calls deliver at most once at a time for it.
type part struct {
	name    string
	handler func(t *testing.T, store dedup.Store, scope string, deliver delivery) (message.NoPublishHandlerFunc, func())
}

// delivery is the effect of a message: it returns nil once the reader has acknowledged it.
type delivery func(ctx context.Context, uuid string, metadata message.Metadata, payload []byte) error

var parts = []part{{"Handler", asHandler}, {"Collector", asCollector}, {"Middleware", asMiddleware}}

func asHandler(t *testing.T, store dedup.Store, scope string, deliver delivery) (message.NoPublishHandlerFunc, func()) {
	p := newProcessor(t, store, scope, deliver)
	return watermillidem.Handler(p), func() { require.NoError(t, p.Close()) }
}

func asCollector(t *testing.T, store dedup.Store, scope string, deliver delivery) (message.NoPublishHandlerFunc, func()) {
	p := newProcessor(t, store, scope, deliver)
	c, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{})
	require.NoError(t, err)
	return c.Handle, func() {
		require.NoError(t, c.Close())
		require.NoError(t, p.Close())
	}
}

func asMiddleware(_ *testing.T, store dedup.Store, scope string, deliver delivery) (message.NoPublishHandlerFunc, func()) {
	g := dedup.NewGuard(store, dedup.GuardConfig{Retention: time.Hour, Rerun: true})
	key := func(m *message.Message) (dedup.Key, error) { return dedup.Key{Scope: scope, ID: m.UUID}, nil }
	h := watermillidem.Middleware(g, key)(func(m *message.Message) ([]*message.Message, error) {
		return nil, deliver(m.Context(), m.UUID, m.Metadata, m.Payload)
	})
	return func(m *message.Message) error {
		_, err := h(m)
		return err
	}, g.Close
}

// raw is the payload of a message: the tests of Watermill do not publish JSON.
type raw []byte

type rawDecoder struct{}

func (rawDecoder) Decode(_ context.Context, m *idem.Message, into any) error {
	*into.(*raw) = m.Value
	return nil
}

func newProcessor(t *testing.T, store dedup.Store, scope string, deliver delivery) *idem.Processor {
	r := idem.NewRouter(idem.ID(watermillidem.ID()), idem.Type(idem.Fixed("message")), idem.DecodeWith(rawDecoder{}),
		idem.Retry(idem.RetryPolicy{
			MaxAttempts: idem.NoLimit, InPlace: idem.Forever, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		}))
	idem.On(r, "message", func(ctx context.Context, e idem.Event[raw]) error {
		metadata := make(message.Metadata)
		for _, h := range e.Message.Headers {
			if h.Key != "_watermill_message_uuid" {
				metadata.Set(h.Key, string(h.Value))
			}
		}
		return deliver(ctx, e.ID, metadata, e.Data)
	})
	p, err := idem.NewProcessor(r, idem.Config{
		Store: store, Scope: scope, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), BusyWait: time.Millisecond,
	})
	require.NoError(t, err)
	return p
}

// subscriber passes its messages through a part of the adapter.
type subscriber struct {
	message.Subscriber
	t     *testing.T
	part  part
	scope func(topic string) (dedup.Store, string)
	acked *acked
	run   sync.WaitGroup
}

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	store, scope := s.scope(topic)
	out := make(chan *message.Message)
	handle, end := s.part.handler(s.t, store, scope,
		func(ctx context.Context, uuid string, metadata message.Metadata, payload []byte) error {
			if s.acked.has(scope, uuid) {
				s.t.Errorf("message %s is delivered after its Ack", uuid)
			}
			m := message.NewMessage(uuid, payload)
			m.Metadata = metadata
			m.SetContext(ctx)
			return await(ctx, out, m)
		})
	s.run.Go(func() {
		var handlers sync.WaitGroup
		for m := range in { // the Pub/Sub bounds the messages without an answer
			handlers.Go(func() {
				if err := handle(m); err != nil {
					m.Nack()
					return
				}
				s.acked.add(scope, m.UUID)
				m.Ack()
			})
		}
		handlers.Wait()
		end()
		close(out)
	})
	return out, nil
}

func (s *subscriber) Close() error {
	err := s.Subscriber.Close()
	s.run.Wait()
	return err
}

var errNack = errors.New("the reader refused the message")

// await gives a message to the reader and returns the answer.
func await(ctx context.Context, out chan<- *message.Message, m *message.Message) error {
	select {
	case out <- m:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-m.Acked():
		return nil
	case <-m.Nacked():
		return errNack
	case <-ctx.Done():
		return ctx.Err()
	}
}

// acked has the messages that the adapter has acknowledged.
type acked struct {
	mu  sync.Mutex
	all map[[2]string]bool
}

func (a *acked) add(scope, uuid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = make(map[[2]string]bool)
	}
	a.all[[2]string{scope, uuid}] = true
}

func (a *acked) has(scope, uuid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[[2]string{scope, uuid}]
}

func newStore() dedup.Store { return memstore.New(memstore.Volatile()) }

// TestMain runs 8 tests at the same time on any machine: the tests mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	m.Run()
}
