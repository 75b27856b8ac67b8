package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

type silences func(observe.SilenceEvent)

func (f silences) ObserveSilence(_ context.Context, e observe.SilenceEvent) { f(e) }

// TestKfake_Silence_K15: one partition gets no answers any longer, without an error. The group is
// joined anew, once, and consumption is back. A partition that is paused, or idle, is not silent.
func TestKfake_Silence_K15(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders", "orders.g.dlq"), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers := cluster.ListenAddrs()
	var told atomic.Int64
	var got tally
	gate := make(chan struct{})
	m := start(t, Config{
		Brokers: brokers, Group: "g", Topics: []string{"orders"}, SilenceTimeout: time.Second, Grace: time.Second,
		Observers: []observe.Observer{silences(func(e observe.SilenceEvent) {
			told.Add(1)
			if e.Topic != "orders" || e.Partition != 1 || e.For < time.Second {
				t.Errorf("told of %+v", e)
			}
		})},
	}, routed(func(ctx context.Context, m *idem.Message) error {
		if eventID(m) == "0" {
			<-gate
		}
		got.add(eventID(m))
		return nil
	}))
	to := func(partition int32, from, to int) {
		var msgs []*sarama.ProducerMessage
		for i := from; i < to; i++ {
			r := record("orders", i)
			r.Metadata = toPartition(partition)
			msgs = append(msgs, r)
		}
		produce(t, brokers, msgs...)
	}
	require.Eventually(t, func() bool { return claimsOf(m) == 2 }, soon, poll)
	to(0, 0, 1300) // more than a lane takes: the partition is paused
	to(1, 2000, 2010)
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	to(0, 1300, 1400)
	_ = pause(t.Context(), 3*time.Second)
	require.Zero(t, told.Load(), "paused, and idle")
	close(gate)
	require.Eventually(t, func() bool { return got.events() == 1410 }, soon, poll)

	forget(cluster, 1)
	to(1, 2010, 2020)
	began := time.Now()
	to(0, 1400, 1410)
	require.Eventually(t, func() bool { return got.events() >= 1420 }, soon, poll)
	require.Eventually(t, func() bool { return got.events() == 1430 }, soon, poll)
	t.Logf("back after %s", time.Since(began))
	require.EqualValues(t, 1, told.Load())
	require.Equal(t, 1, m.count("joining the group anew"))
	require.Equal(t, 1430, got.total(), "given back in order")
	require.NoError(t, m.end())
}

// TestKfake_SilenceWithBacklog_K15: the fetching of a backlog ends after the first answer, which had
// the end of the log. No record is written afterwards. The group is joined anew, once.
func TestKfake_SilenceWithBacklog_K15(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders", "orders.g.dlq"), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers := cluster.ListenAddrs()
	for i := range 50 { // a batch each
		r := record("orders", i)
		r.Metadata = toPartition(1)
		produce(t, brokers, r)
	}
	var told, fetches atomic.Int64
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		f := req.(*kmsg.FetchRequest)
		// a question about the end of a log does not wait for records
		if f.MaxWaitMillis == 0 || told.Load() > 0 || fetches.Add(1) == 1 {
			return nil, nil, false
		}
		for i := range f.Topics {
			f.Topics[i].Partitions = slices.DeleteFunc(f.Topics[i].Partitions, func(p kmsg.FetchRequestTopicPartition) bool {
				return p.Partition == 1
			})
		}
		return nil, nil, false
	})
	var got tally
	m := start(t, Config{
		Brokers: brokers, Group: "g", Topics: []string{"orders"}, SilenceTimeout: time.Second, Grace: time.Second,
		Sarama: func(sc *sarama.Config) {
			quick(sc)
			sc.Consumer.Fetch.Default = 256
		},
		Observers: []observe.Observer{silences(func(e observe.SilenceEvent) {
			told.Add(1)
			if e.Topic != "orders" || e.Partition != 1 || e.For < time.Second || e.Seen >= 50 {
				t.Errorf("told of %+v", e)
			}
		})},
	}, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 50 }, soon, poll)
	require.EqualValues(t, 1, told.Load())
	require.Equal(t, 50, got.total(), "given back in order")
	require.NoError(t, m.end())
}

// forget leaves a partition out of the answers to fetches, until the group is joined again.
func forget(cluster *kfake.Cluster, partition int32) {
	var over atomic.Bool
	cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		over.Store(true)
		return nil, nil, false
	})
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if over.Load() {
			return nil, nil, false
		}
		cluster.KeepControl()
		f := req.(*kmsg.FetchRequest)
		for i := range f.Topics {
			kept := f.Topics[i].Partitions[:0]
			for _, p := range f.Topics[i].Partitions {
				if p.Partition != partition {
					kept = append(kept, p)
				}
			}
			f.Topics[i].Partitions = kept
		}
		return nil, nil, false
	})
}

// TestKafka_BrokenLinks_K15: connections to the broker are cut, and later the network is silent for
// longer than a session. Each time all partitions are consumed again within 30 s, by the same
// consumer, and no event is handled twice.
func TestKafka_BrokenLinks_K15(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 4)
	net := new(netproxy.Links)
	cfg.Store, cfg.SilenceTimeout, cfg.Grace = forever(), 5*time.Second, 2*time.Second
	cfg.Sarama = func(sc *sarama.Config) {
		quick(sc)
		sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, net
	}
	var got tally
	m := start(t, cfg, routed(got.handle))
	n := 0
	back := func(what string) {
		produceEvents(t, brokers, topic, n, n+40)
		n += 40
		began := time.Now()
		require.Eventually(t, func() bool { return got.events() == n }, 30*time.Second, poll, what)
		t.Logf("%s: back after %s", what, time.Since(began))
	}
	back("start")
	for range 5 {
		net.Cut()
		back("cut")
	}
	restore := net.Silence()
	_ = pause(t.Context(), 8*time.Second)
	restore()
	back("silent")
	require.Equal(t, n, got.total())
	require.NoError(t, m.end())
}

// topicEvents keeps the events of a TopicObserver.
type topicEvents struct {
	mu  sync.Mutex
	all []observe.TopicEvent
}

func (e *topicEvents) ObserveTopic(_ context.Context, event observe.TopicEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// TestKafka_TopicDeleted_K27: one of two topics is deleted. The other one goes on, the loss is told
// once, and when the topic is there again it is consumed from its beginning.
func TestKafka_TopicDeleted_K27(t *testing.T) {
	t.Parallel()
	for _, cooperative := range []bool{false, true} {
		brokers, topic, cfg := onKafka(t, 2)
		admin := testenv.KafkaAdmin(t, brokers)
		doomed := topic + "-doomed"
		createTopic(t, brokers, doomed, 2)
		events := new(topicEvents)
		cfg.Topics, cfg.Cooperative, cfg.Grace = append(cfg.Topics, doomed), cooperative, time.Second
		cfg.Observers, cfg.OnGap = []observe.Observer{events}, EarliestOnGap
		cfg.Sarama = func(sc *sarama.Config) {
			quick(sc)
			sc.Metadata.RefreshFrequency = time.Second
			sc.Metadata.Retry.Max = 3
		}
		var got tally
		often := func(c *Consumer) { c.life.Topics.Every = time.Second }
		one, two := start(t, cfg, routed(got.handle), often), start(t, cfg, routed(got.handle), often)
		produceEvents(t, brokers, topic, 0, 20)
		produceEvents(t, brokers, doomed, 1000, 1020)
		require.Eventually(t, func() bool { return got.events() == 40 }, soon, poll)
		require.NoError(t, admin.DeleteTopic(doomed))
		began := time.Now()
		gone := func(m *member) bool {
			var not *NotReadyError
			return errors.As(m.Ready(), &not) && len(m.life.Topics.Missing()) == 1
		}
		require.Eventually(t, func() bool { return gone(one) && gone(two) }, time.Minute, poll)
		t.Logf("cooperative %v: told after %s", cooperative, time.Since(began))
		produceEvents(t, brokers, topic, 20, 40)
		require.Eventually(t, func() bool { return got.events() == 60 }, soon, poll, "the other topic goes on")
		t.Logf("cooperative %v: consumed after %s", cooperative, time.Since(began))
		require.Equal(t, 1, one.count("does not exist any longer"))

		createTopic(t, brokers, doomed, 2)
		produceEvents(t, brokers, doomed, 2000, 2020)
		require.Eventually(t, func() bool { return got.events() == 80 }, soon, poll)
		require.Eventually(t, func() bool { return one.Ready() == nil && two.Ready() == nil }, soon, poll)
		for _, m := range []*member{one, two} { // the topic that is back may still be shared out
			if err := m.end(); err != nil {
				// The brokers have begun the next generation and refuse commits of the one before.
				// The number of the next one is known to sarama alone until the leader has shared
				// out the partitions, and the leader may be stopping too.
				require.ErrorIs(t, err, ErrNotCommitted, "a stop in the middle of a rebalance says what is delivered again")
			}
		}
		require.Len(t, events.all, 4, "by two members")
	}
}

// TestKafka_StopAfterTopicDeleted_K27: a topic is deleted, and the consumer is stopped before it
// has noticed. The offsets of the topic cannot be committed any longer. That delays no stop and is
// no error, since no record of the topic can be delivered again. The other topic is committed.
func TestKafka_StopAfterTopicDeleted_K27(t *testing.T) {
	for name, cooperative := range map[string]bool{"eager": false, "cooperative": true} {
		t.Run(name, func(t *testing.T) {
			brokers, topic, cfg := onKafka(t, 1)
			admin := testenv.KafkaAdmin(t, brokers)
			doomed := topic + "-doomed"
			createTopic(t, brokers, doomed, 1)
			cfg.Topics, cfg.Cooperative, cfg.Grace, cfg.CommitInterval = append(cfg.Topics, doomed), cooperative, time.Second, time.Hour
			var got tally
			m := start(t, cfg, routed(got.handle))
			produceEvents(t, brokers, topic, 0, 20)
			produceEvents(t, brokers, doomed, 1000, 1020)
			require.Eventually(t, func() bool { return got.events() == 40 }, soon, poll)
			require.NoError(t, admin.DeleteTopic(doomed))
			began := time.Now()
			require.NoError(t, m.end())
			require.Less(t, time.Since(began), runner.CommitWait)
			require.EqualValues(t, 20, committed(t, brokers, cfg.Group, topic, 0)[0])
		})
	}
}
