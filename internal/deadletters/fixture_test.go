package deadletters

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/kafkalog"
)

// world is a group with events that fail, with its topics and its store.
type world struct {
	t        *testing.T
	brokers  []string
	client   sarama.Client
	producer *consumer.Producer
	store    dedup.Store
	offset   int64
}

// newWorld has a Kafka inside this process, with topics of two partitions, and a store in memory.
func newWorld(t *testing.T) *world {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders", "orders.g.dlq", "orders.g.retry"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg, err := consumer.DefaultSaramaConfig(consumer.Config{Brokers: cluster.ListenAddrs(), Group: "g", Topics: []string{"orders"}})
	require.NoError(t, err)
	cfg.Metadata.Retry.Max = 1
	client, err := sarama.NewClient(cluster.ListenAddrs(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	producer, err := consumer.NewProducer(client)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, producer.Close()) })
	return &world{t: t, brokers: cluster.ListenAddrs(), client: client, producer: producer, store: memstore.New(memstore.Volatile())}
}

// open is the queue as far as it reaches now.
func (w *world) open() *Queue {
	w.t.Helper()
	q, err := Open(Config{
		Client: w.client, Topic: "orders.g.dlq", Source: "orders", Group: "g", Scope: "g", Stores: []NamedStore{{Name: "test", Store: w.store}},
	})
	require.NoError(w.t, err)
	return q
}

// event is the next record of the source topic.
func (w *world) event(id, rest string) *idem.Message {
	w.offset++
	return &idem.Message{
		Topic: "orders", Partition: int32(w.offset % 2), Offset: w.offset, Key: []byte("key of " + id), Time: time.Now(),
		Value: fmt.Appendf(nil, `{"event_id":%q,"type":"paid"%s}`, id, rest),
	}
}

var errBroken = errors.New("broken")

// handle passes messages to the group, with fn as its handler.
func (w *world) handle(fn func(id string) error, messages ...*idem.Message) {
	w.t.Helper()
	r := idem.NewRouter()
	idem.On(r, "paid", func(_ context.Context, e idem.Event[struct{}]) error { return fn(e.ID) })
	p, err := idem.NewProcessor(r, idem.Config{
		Store: w.store, Scope: "g", Producer: w.producer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(w.t, err)
	defer p.Close()
	for _, m := range messages {
		require.NoError(w.t, p.Handle(w.t.Context(), m))
	}
}

// fail lets events become dead letters.
func (w *world) fail(messages ...*idem.Message) {
	w.t.Helper()
	w.handle(func(string) error { return idem.Permanent(errBroken) }, messages...)
}

// events are n events with IDs that begin so.
func (w *world) events(prefix string, n int) (all []*idem.Message) {
	for i := range n {
		all = append(all, w.event(fmt.Sprint(prefix, i), ""))
	}
	return all
}

// read returns all records of a topic.
func (w *world) read(topic string) (all []*idem.Message) {
	w.t.Helper()
	spans, err := kafkalog.Spans(w.client, topic)
	require.NoError(w.t, err)
	for _, s := range spans {
		_, err := kafkalog.Read(w.t.Context(), w.client, s, func(m *idem.Message) (bool, error) {
			all = append(all, m)
			return true, nil
		})
		require.NoError(w.t, err)
	}
	return all
}

func (w *world) deadLetters() []*idem.Message { return w.read("orders.g.dlq") }
func (w *world) copies() []*idem.Message      { return w.read("orders.g.retry") }

// copiesByID are the generations of the copies of each event.
func (w *world) copiesByID() map[string][]string {
	w.t.Helper()
	found := make(map[string][]string)
	for _, m := range w.copies() {
		id := headerText(m, deadletter.HeaderEventID)
		require.Equal(w.t, "0", headerText(m, deadletter.HeaderRetry))
		found[id] = append(found[id], headerText(m, deadletter.HeaderGeneration))
	}
	return found
}

func headerText(m *idem.Message, name string) string {
	for _, h := range slices.Backward(m.Headers) {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
