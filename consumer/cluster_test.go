package consumer

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

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
)

// fakeBrokers starts a Kafka inside this process.
func fakeBrokers(t testing.TB, partitions int32, topics ...string) []string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster.ListenAddrs()
}

// quick makes rebalances fit for a test.
func quick(sc *sarama.Config) {
	sc.Consumer.Group.Session.Timeout = 6 * time.Second
	sc.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	sc.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	sc.Consumer.MaxWaitTime = 100 * time.Millisecond
}

// forever remembers for the whole test, over all consumers, as a durable store does.
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

func (l *logs) count(s string) int { return strings.Count(l.String(), s) }

// member is a Consumer under way.
type member struct {
	*Consumer
	*logs
	stop context.CancelFunc
	done chan struct{}
	err  error
}

// start runs a consumer. It is stopped at the end of the test at the latest; its log is shown if
// the test failed.
func start(t *testing.T, cfg Config, r *idem.Router, change ...func(*Consumer)) *member {
	t.Helper()
	m := &member{logs: new(logs), done: make(chan struct{})}
	cfg.Logger = slog.New(slog.NewTextHandler(m.logs, nil))
	if cfg.Sarama == nil {
		cfg.Sarama = quick
	}
	if cfg.Store == nil {
		cfg.Store = forever()
	}
	c, err := New(cfg, r)
	require.NoError(t, err)
	for _, f := range change {
		f(c)
	}
	m.Consumer = c
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		defer close(m.done)
		m.err = c.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-m.done
		if t.Failed() {
			t.Log("log of the member:\n" + m.logs.String())
		}
	})
	return m
}

// end stops the consumer and returns the error of Run.
func (m *member) end() error {
	m.stop()
	<-m.done
	return m.err
}

// wait returns the error of a Run that ends by itself.
func (m *member) wait(t *testing.T, within time.Duration) error {
	t.Helper()
	select {
	case <-m.done:
		return m.err
	case <-time.After(within):
		t.Fatalf("Run does not return within %s", within)
		return nil
	}
}

// routed returns a router that gives every message with the header event-id to fn.
func routed(fn func(context.Context, *idem.Message) error, opts ...idem.Option) *idem.Router {
	r := idem.NewRouter(idem.Type(idem.Fixed("thing")), idem.ID(idem.FromHeader("event-id")))
	r = r.With(opts...)
	idem.On(r, "thing", func(ctx context.Context, e idem.Event[struct{}]) error { return fn(ctx, e.Message) })
	return r
}

// record makes event number i, with a key of its own.
func record(topic string, i int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(fmt.Sprint("key-", i)), Value: sarama.StringEncoder("{}"),
		Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, i)}},
	}
}

// produce writes records once and waits until they are there. The offsets are in the records.
func produce(t *testing.T, brokers []string, msgs ...*sarama.ProducerMessage) {
	t.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Producer.Idempotent, cfg.Net.MaxOpenRequests = true, 1 // otherwise a request may count twice
	cfg.Producer.Partitioner = func(topic string) sarama.Partitioner {
		return byHeader{sarama.NewMurmur2Partitioner(topic)}
	}
	p, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, p.SendMessages(msgs))
}

// createTopic creates a topic with a name of the test, and waits until it can be used: the broker
// knows a topic some time after it has acknowledged its creation.
func createTopic(t *testing.T, brokers []string, name string, partitions int32) {
	t.Helper()
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	require.NoError(t, err)
	defer admin.Close() // and the client
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}
	require.Eventually(t, func() bool { // a topic of the name may not be deleted yet
		err = admin.CreateTopic(name, detail, false)
		return !errors.Is(err, sarama.ErrTopicAlreadyExists)
	}, soon, poll)
	require.NoError(t, err)
	testenv.WaitTopic(t, client, name, partitions)
}

// byHeader honours ProducerMessage.Partition if Metadata says so.
type byHeader struct{ sarama.Partitioner }

type toPartition int32

func (b byHeader) Partition(m *sarama.ProducerMessage, n int32) (int32, error) {
	if p, ok := m.Metadata.(toPartition); ok {
		return int32(p), nil
	}
	return b.Partitioner.Partition(m, n)
}

func produceEvents(t *testing.T, brokers []string, topic string, from, to int) {
	t.Helper()
	var msgs []*sarama.ProducerMessage
	for i := from; i < to; i++ {
		msgs = append(msgs, record(topic, i))
	}
	produce(t, brokers, msgs...)
}

// committed returns the offsets that a group has committed, and -1 for a partition without one.
func committed(t *testing.T, brokers []string, group, topic string, partitions ...int32) map[int32]int64 {
	t.Helper()
	admin := testenv.KafkaAdmin(t, brokers)
	resp, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	require.NoError(t, err)
	offsets := make(map[int32]int64)
	for _, id := range partitions {
		b := resp.GetBlock(topic, id)
		require.NotNil(t, b)
		offsets[id] = b.Offset
	}
	return offsets
}

// readAll reads a topic from its beginning until it has n records.
func readAll(t *testing.T, brokers []string, topic string, n int) (all []*sarama.ConsumerMessage) {
	t.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient(brokers, cfg)
	require.NoError(t, err)
	defer client.Close()
	var ids []int32
	require.Eventually(t, func() bool { // a consumer may create the topic just now
		ids, err = client.Partitions(topic)
		return err == nil
	}, soon, poll)
	testenv.WaitTopic(t, client, topic, int32(len(ids)))
	c, err := sarama.NewConsumerFromClient(client)
	require.NoError(t, err)
	defer c.Close()
	into := make(chan *sarama.ConsumerMessage)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for _, id := range ids {
		pc, err := c.ConsumePartition(topic, id, sarama.OffsetOldest)
		require.NoError(t, err)
		readers.Go(func() {
			defer pc.Close()
			for {
				select {
				case m := <-pc.Messages():
					select {
					case into <- m:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		})
	}
	defer readers.Wait()
	defer close(stop)
	const silence = 20 * time.Second
	timeout := time.NewTimer(silence)
	defer timeout.Stop()
	for len(all) < n {
		select {
		case m := <-into:
			all = append(all, m)
			timeout.Reset(silence)
		case <-timeout.C:
			t.Fatalf("%d records in %s, expected %d, and no other for %v", len(all), topic, n, silence)
		}
	}
	return all
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

// eventID returns the header by which tests name events.
func eventID(m *idem.Message) string {
	for _, h := range m.Headers {
		if h.Key == "event-id" {
			return string(h.Value)
		}
	}
	return ""
}

// counting handles events by counting them.
func (c *tally) handle(_ context.Context, m *idem.Message) error {
	c.add(eventID(m))
	return nil
}

// duplicates counts deliveries that the store knew.
type duplicates struct {
	tally
	mu   sync.Mutex
	list []string
}

func (d *duplicates) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	d.add(e.Key.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, fmt.Sprintf("%s: %s/%d/%d %v, same record %v",
		e.Key.ID, e.Message.Topic, e.Message.Partition, e.Message.Offset, e.Verdict, e.SameRecord))
}

// seen names the events, their records and the store's answers.
func (d *duplicates) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

const soon, poll = 30 * time.Second, 20 * time.Millisecond
