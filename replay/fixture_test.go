package replay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/memstore"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// runs counts the runs of each event.
type runs struct {
	mu     sync.Mutex
	events map[string]int
	total  int
	hook   func(e idem.Event[struct{}], n int) error // n: the number of this run of any event
}

func (r *runs) handle(_ context.Context, e idem.Event[struct{}]) error {
	r.mu.Lock()
	r.total++
	n, hook := r.total, r.hook
	r.mu.Unlock()
	if hook != nil {
		if err := hook(e, n); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events == nil {
		r.events = make(map[string]int)
	}
	r.events[e.ID]++
	return nil
}

// times returns how many events had each number of successful runs.
func (r *runs) times() map[int]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	times := make(map[int]int)
	for _, n := range r.events {
		times[n]++
	}
	return times
}

func (r *runs) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.events))
}

func (r *runs) router(options ...idem.Option) *idem.Router {
	router := idem.NewRouter(idem.Type(idem.Fixed("paid")), idem.ID(idem.FromHeader("event-id")),
		idem.Retry(idem.RetryPolicy{MaxAttempts: 2, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond}))
	idem.On(router, "paid", r.handle, options...)
	return router
}

// world is a Kafka in this process with a topic of two partitions, "orders".
type world struct {
	t     *testing.T
	live  consumer.Config
	admin sarama.ClusterAdmin
	kgo   *kgo.Client
	kafka *kfake.Cluster // nil on a real Kafka
	next  int            // number of the next event
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	w := worldOn(t, cluster.ListenAddrs(), "orders", "billing")
	w.kafka = cluster
	return w
}

func worldOn(t *testing.T, brokers []string, topic, group string) *world {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.ClientID = "idem-test"
	admin, err := sarama.NewClusterAdmin(brokers, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("tx-"+topic),
		kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return &world{t: t, admin: admin, kgo: client, live: consumer.Config{
		Brokers: brokers, Group: group, Topics: []string{topic}, Lease: time.Second, Logger: quiet,
		Store: memstore.New(memstore.Volatile()), Grace: 5 * time.Second,
	}}
}

// began is the time of the first event; each is a minute later than the one before.
var began = time.Now().Add(-24 * time.Hour).Truncate(time.Second)

// write writes n events in one transaction, alternating over two partitions, and ends it.
func (w *world) write(n int, how kgo.TransactionEndTry) {
	w.t.Helper()
	w.open(n)
	require.NoError(w.t, w.kgo.EndTransaction(w.t.Context(), how))
}

// open is write without the end.
func (w *world) open(n int) {
	w.t.Helper()
	require.NoError(w.t, w.kgo.BeginTransaction())
	for range n {
		require.NoError(w.t, w.kgo.ProduceSync(w.t.Context(), &kgo.Record{
			Partition: int32(w.next % 2), Value: []byte(`{}`), Key: fmt.Append(nil, "key", w.next%7),
			Timestamp: began.Add(time.Duration(w.next) * time.Minute),
			Headers:   []kgo.RecordHeader{{Key: "event-id", Value: fmt.Appendf(nil, "e%03d", w.next)}},
		}).FirstErr())
		w.next++
	}
}

// replay returns a replay that the test closes.
func (w *world) replay(router *idem.Router, cfg Config) *Replay {
	w.t.Helper()
	r, err := New(w.live, router, cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, r.Close()) })
	return r
}

func (w *world) plan(r *Replay) Plan {
	w.t.Helper()
	p, err := r.Plan(w.t.Context())
	require.NoError(w.t, err)
	return p
}

// all is the window of everything.
var all = Between(time.Time{}, time.Time{})
