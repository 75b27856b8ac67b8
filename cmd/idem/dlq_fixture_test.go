package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
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
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/kafkalog"
)

// deadLetterWorld is a group with failing events, with its topics and its store.
type deadLetterWorld struct {
	t        *testing.T
	brokers  []string
	client   sarama.Client
	producer *consumer.Producer
	store    dedup.Store
	topic    string
	group    string
	offset   int64
}

// newDeadLetterWorld has a Kafka inside this process with topics of two partitions, and a store in
// memory.
func newDeadLetterWorld(t *testing.T) *deadLetterWorld {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders", "orders.g.dlq", "orders.g.retry"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return newDeadLetterWorldAt(t, cluster.ListenAddrs(), memstore.New(memstore.Volatile()), "orders")
}

func newDeadLetterWorldAt(t *testing.T, brokers []string, store dedup.Store, topic string) *deadLetterWorld {
	t.Helper()
	cfg, err := consumer.DefaultSaramaConfig(consumer.Config{Brokers: brokers, Group: "g", Topics: []string{topic}})
	require.NoError(t, err)
	client, err := sarama.NewClient(brokers, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	producer, err := consumer.NewProducer(client)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, producer.Close()) })
	return &deadLetterWorld{t: t, brokers: brokers, client: client, producer: producer, store: store, topic: topic, group: "g"}
}

// event is the next record of the source topic.
func (w *deadLetterWorld) event(id, rest string) *idem.Message {
	w.offset++
	return &idem.Message{
		Topic: w.topic, Partition: int32(w.offset % 2), Offset: w.offset, Key: []byte("key of " + id), Time: time.Now(),
		Value: fmt.Appendf(nil, `{"event_id":%q,"type":"paid"%s}`, id, rest),
	}
}

var errBroken = errors.New("broken")

// handle is the group, with fn as the handler.
func (w *deadLetterWorld) handle(fn func(id string) error, messages ...*idem.Message) {
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
func (w *deadLetterWorld) fail(messages ...*idem.Message) {
	w.t.Helper()
	w.handle(func(string) error { return idem.Permanent(errBroken) }, messages...)
}

// events are n events with IDs that begin so.
func (w *deadLetterWorld) events(prefix string, n int) (all []*idem.Message) {
	for i := range n {
		all = append(all, w.event(fmt.Sprint(prefix, i), ""))
	}
	return all
}

func (w *deadLetterWorld) key(id string) dedup.Key {
	return dedup.Key{Scope: "g", Type: "paid", ID: id}
}

// read returns all records of a topic.
func (w *deadLetterWorld) read(topic string) (all []*idem.Message) {
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

func (w *deadLetterWorld) deadLetters() []*idem.Message { return w.read(w.topic + ".g.dlq") }
func (w *deadLetterWorld) copies() []*idem.Message      { return w.read(w.topic + ".g.retry") }

// copiesByID are the generations of the copies of each event.
func (w *deadLetterWorld) copiesByID() map[string][]string {
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

// session is one run of the command, as far as a test makes it by hand.
type session struct {
	*deadLetters
	out, err *bytes.Buffer
}

// open is openDLQ with this store.
func (w *deadLetterWorld) open() *session {
	w.t.Helper()
	s := &session{out: new(bytes.Buffer), err: new(bytes.Buffer)}
	a := &app{stdin: strings.NewReader(""), stdout: s.out, stderr: s.err, brokers: w.brokers, group: w.group, output: "json", yes: true}
	w.t.Cleanup(a.close)
	d, err := a.openDLQ(w.t.Context(), &dlqFlags{topic: w.topic}, false)
	require.NoError(w.t, err)
	d.Stores = []deadletters.NamedStore{{Name: "test", Store: w.store}}
	s.deadLetters = d
	return s
}

// verdicts asks plan.
func (w *deadLetterWorld) verdicts(f deadletters.Filter, decided deadletters.Decisions) map[string]deadletters.Row {
	w.t.Helper()
	s := w.open()
	s.decisions = decided
	require.NoError(w.t, s.plan(w.t.Context(), f, 0))
	found := make(map[string]deadletters.Row)
	for _, r := range decodeJSON[[]deadletters.Row](w.t, s.out) {
		found[r.Record] = r
	}
	return found
}

// byEvent are verdicts by event ID, several of one event sorted.
func byEvent(rows map[string]deadletters.Row) map[string][]deadletters.Verdict {
	found := make(map[string][]deadletters.Verdict)
	for _, place := range slices.Sorted(maps.Keys(rows)) {
		r := rows[place]
		found[r.ID] = append(found[r.ID], r.Verdict)
	}
	for _, v := range found {
		slices.Sort(v)
	}
	return found
}

func (w *deadLetterWorld) replay(f deadletters.Filter, bounds replayFlags, decided deadletters.Decisions) (deadletters.Result, string) {
	w.t.Helper()
	s := w.open()
	s.decisions = decided
	require.NoError(w.t, s.replay(w.t.Context(), w.producer, f, bounds))
	if s.out.Len() == 0 {
		return deadletters.Result{}, s.err.String()
	}
	return decodeJSON[deadletters.Result](w.t, s.out), s.err.String()
}

// applied counts the runs of each event.
type applied struct {
	mu   sync.Mutex
	runs map[string]int
}

func (a *applied) run(id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.runs == nil {
		a.runs = make(map[string]int)
	}
	a.runs[id]++
	return nil
}
