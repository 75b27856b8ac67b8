package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

const soon, poll = 30 * time.Second, 20 * time.Millisecond

var errTest = errors.New("test")

// fakeBrokers starts a Kafka inside this process.
func fakeBrokers(t testing.TB, partitions int32, topics ...string) []string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster.ListenAddrs()
}

// onFake returns a fake Kafka with a topic, and a Config for it.
func onFake(t *testing.T, partitions int32) (brokers []string, topic string, cfg Config) {
	t.Helper()
	brokers = fakeBrokers(t, partitions, "orders")
	return brokers, "orders", configFor(brokers, "orders")
}

// onKafka returns the real Kafka, a topic with a name of its own, and a Config for it.
func onKafka(t *testing.T, partitions int32) (brokers []string, topic string, cfg Config) {
	t.Helper()
	brokers = testenv.Kafka(t)
	topic = testenv.CreateTopic(t, brokers, partitions)
	return brokers, topic, configFor(brokers, topic)
}

func configFor(brokers []string, topic string) Config {
	return Config{
		Brokers: brokers, Group: "g-" + topic, Topics: []string{topic}, Options: quick(),
		CreateDeadLetterTopics: &runner.TopicSpec{}, Grace: 10 * time.Second,
	}
}

// quick makes rebalances fit for a test.
func quick() []kgo.Opt {
	return []kgo.Opt{
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
}

// clientOf returns a client that is closed after the test.
func clientOf(t testing.TB, brokers []string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// manual returns a producer that writes to the partitions of the records.
func manual(t testing.TB, brokers []string) *kgo.Client {
	t.Helper()
	return clientOf(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

// forever remembers for the whole test, over all runners, as a durable store does.
func forever() dedup.Store { return memstore.New(memstore.Volatile()) }

// logs keeps the lines of a log.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running is a Runner under way.
type running struct {
	*Runner
	*logs
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// start runs a Runner, after the changes to it. It is stopped at the end of the test at the latest; its log is shown if the
// test failed.
func start(t *testing.T, cfg Config, router *idem.Router, changes ...func(*Runner)) *running {
	t.Helper()
	m := &running{logs: new(logs), done: make(chan struct{})}
	cfg.Logger = slog.New(slog.NewTextHandler(m.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if cfg.Store == nil {
		cfg.Store = forever()
	}
	r, err := New(cfg, router)
	require.NoError(t, err)
	m.Runner = r
	for _, change := range changes {
		change(r)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		defer close(m.done)
		m.err = r.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-m.done
		if t.Failed() || testing.Verbose() {
			t.Log("log of the runner:\n" + m.logs.String())
		}
	})
	return m
}

// end stops the runner and returns the error of Run.
func (m *running) end() error {
	m.stop()
	<-m.done
	return m.err
}

// wait returns the error of a Run that ends by itself.
func (m *running) wait(t *testing.T, within time.Duration) error {
	t.Helper()
	select {
	case <-m.done:
		return m.err
	case <-time.After(within):
		t.Fatalf("Run does not return within %s", within)
		return nil
	}
}

// waits reports whether the log says that the group cannot be consumed, or Run has ended.
func (m *running) waits() bool {
	select {
	case <-m.done:
		return true
	default:
		return strings.Contains(m.String(), "cannot consume")
	}
}

// claims counts the assignments of source topics.
func (m *running) claims() (n int) {
	for _, a := range m.group.Assignments() {
		if !runner.IsRetry(a.Topic, m.cfg.Group) {
			n++
		}
	}
	return n
}

// routed returns a router that gives every message with the header event-id to fn.
func routed(fn func(context.Context, *idem.Message) error, opts ...idem.Option) *idem.Router {
	r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
	r = r.With(opts...)
	idem.On(r, "thing", func(ctx context.Context, e idem.Event[struct{}]) error { return fn(ctx, e.Message) })
	return r
}

// record makes event number i, with a key of its own.
func record(topic string, i int) *kgo.Record {
	return &kgo.Record{
		Topic: topic, Key: fmt.Append(nil, "key-", i), Value: []byte("{}"),
		Headers: []kgo.RecordHeader{{Key: "event-id", Value: fmt.Append(nil, i)}},
	}
}

func produceEvents(t *testing.T, brokers []string, topic string, from, to int) {
	t.Helper()
	var records []*kgo.Record
	for i := from; i < to; i++ {
		records = append(records, record(topic, i))
	}
	cl := clientOf(t, brokers)
	require.NoError(t, cl.ProduceSync(t.Context(), records...).FirstErr())
}

// committed returns the sum of the offsets that a group has committed, and the number of partitions
// with one.
func committed(t *testing.T, brokers []string, group, topic string) (sum int64, partitions int) {
	t.Helper()
	admin := kadm.NewClient(clientOf(t, brokers))
	offsets, err := admin.FetchOffsets(context.Background(), group)
	require.NoError(t, err)
	for _, o := range offsets[topic] {
		require.NoError(t, o.Err)
		sum += o.At
		partitions++
	}
	return sum, partitions
}

// readAll reads a topic from its beginning until it has n records.
func readAll(t *testing.T, brokers []string, topic string, n int) (all []*kgo.Record) {
	t.Helper()
	cl := clientOf(t, brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for len(all) < n {
		all = append(all, cl.PollFetches(ctx).Records()...)
		require.NoError(t, ctx.Err(), "%d records in %s, expected %d", len(all), topic, n)
	}
	return all
}

// header returns a header of a record.
func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// tally counts deliveries by event.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[id]++
	return c.n[id]
}

func (c *tally) events() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.n)
}

func (c *tally) total() (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		sum += n
	}
	return sum
}

// handle handles events by counting them.
func (c *tally) handle(_ context.Context, m *idem.Message) error {
	c.add(eventID(m))
	return nil
}

// eventID returns the header by which tests name events.
func eventID(m *idem.Message) string {
	for _, h := range m.Headers {
		if h.Key == "event-id" {
			return string(h.Value)
		}
	}
	return ""
}

// duplicates lists deliveries that the store knew.
type duplicates struct {
	mu   sync.Mutex
	list []string
}

func (d *duplicates) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, fmt.Sprintf("%s: %s/%d/%d %v, same record %v",
		e.Key.ID, e.Message.Topic, e.Message.Partition, e.Message.Offset, e.Verdict, e.SameRecord))
}

func (d *duplicates) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}
