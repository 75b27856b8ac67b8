package publish

import (
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
)

func leaderless(c *kfake.Cluster, on *atomic.Bool, addr string, n int32, match func(topic string, p int32) bool) {
	host, ps, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(ps)
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		if !on.Load() || len(req.Topics) == 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = c.CurrentNode(), host, int32(port)
		resp.Brokers = append(resp.Brokers, b)
		for _, topic := range req.Topics {
			mt := kmsg.NewMetadataResponseTopic()
			mt.Topic = topic.Topic
			for p := range n {
				mp := kmsg.NewMetadataResponseTopicPartition()
				mp.Partition, mp.Leader, mp.LeaderEpoch = p, b.NodeID, -1
				if match(*topic.Topic, p) {
					mp.Leader, mp.ErrorCode = -1, kerr.LeaderNotAvailable.Code
				}
				mt.Partitions = append(mt.Partitions, mp)
			}
			resp.Topics = append(resp.Topics, mt)
		}
		return resp, nil, true
	})
}

func spread(topic string, n int) (all []*idem.Message) {
	for i := range n {
		all = append(all, keyed(topic, "k"+strconv.Itoa(i), 0, 1)...)
	}
	return all
}

// Partitions without a leader do not delay those with one.
func TestProduceInOrder_ManyWithoutLeader_O10(t *testing.T) {
	const n = 100
	cluster, brokers := fakeCluster(t, n, []string{"away", "orders"})
	var on atomic.Bool
	leaderless(cluster, &on, brokers[0], n, func(topic string, p int32) bool { return topic == "away" })
	p := openProducer(t, brokers)
	on.Store(true)
	msgs := append(spread("away", 300), spread("orders", 20)...)
	began := time.Now()
	errs := p.ProduceInOrder(t.Context(), msgs)
	t.Logf("took %s", time.Since(began))
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorIs(t, errs[0], sarama.ErrLeaderNotAvailable)
	require.Empty(t, p.inOrder.id.ended, "nothing was sent without an answer")
	bad := 0
	for _, err := range errs[300:] {
		if err != nil {
			bad++
		}
	}
	on.Store(false)
	began = time.Now()
	errs = p.ProduceInOrder(t.Context(), spread("orders", 20))
	noErrors(t, errs)
	require.Less(t, time.Since(began), time.Second)
	require.Zero(t, bad)
}

// Topics without any leader do not delay a topic with one: the brokers are asked once for all.
func TestProduceInOrder_ManyTopicsWithoutLeader_O10(t *testing.T) {
	const n = 30
	topics := []string{"orders"}
	for i := range n {
		topics = append(topics, "away"+strconv.Itoa(i))
	}
	cluster, brokers := fakeCluster(t, 1, topics)
	p := openProducer(t, brokers)
	var msgs []*idem.Message
	for _, topic := range topics {
		msgs = append(msgs, keyed(topic, "a", 0, 1)...)
		noErrors(t, p.ProduceEach(t.Context(), keyed(topic, "a", 0, 1)))
	}
	var on atomic.Bool
	leaderless(cluster, &on, brokers[0], 1, func(topic string, _ int32) bool { return topic != "orders" })
	on.Store(true)
	require.ErrorIs(t, p.client.RefreshMetadata(topics...), sarama.ErrLeaderNotAvailable)
	began := time.Now()
	errs := p.ProduceInOrder(t.Context(), msgs)
	t.Logf("took %s", time.Since(began))
	require.Less(t, time.Since(began), 5*time.Second)
	require.NoError(t, errs[0])
	for _, err := range errs[1:] {
		require.ErrorIs(t, err, sarama.ErrLeaderNotAvailable)
	}
}

// A topic that the brokers are still asked for delays the others for a moment only.
func TestProduceInOrder_TopicWithoutAnswer_O10(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Metadata.Retry.Max = 10_000 }) // the test ends before the question does
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 1)))
	began := time.Now()
	errs := p.ProduceInOrder(t.Context(), append(keyed("missing", "a", 0, 2), keyed("orders", "a", 1, 2)...))
	require.Less(t, time.Since(began), 2*askWait)
	for _, err := range errs[:2] {
		require.ErrorIs(t, err, errNotSent)
		require.ErrorIs(t, err, errTopicUnknown)
	}
	noErrors(t, errs[2:])
}

// Messages without a key go to partitions with a leader, as long as there is one.
func TestProduceInOrder_KeylessBesideLeaderless_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 2, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	var on atomic.Bool
	leaderless(cluster, &on, brokers[0], 2, func(_ string, p int32) bool { return p == 1 })
	on.Store(true)
	require.ErrorIs(t, p.client.RefreshMetadata("orders"), sarama.ErrLeaderNotAvailable)
	for range 20 {
		noErrors(t, p.ProduceInOrder(t.Context(), []*idem.Message{{Topic: "orders", Value: []byte("x")}}))
	}
}

// A partition without a leader does not keep a sibling from another attempt.
func TestProduceInOrder_SiblingWithoutLeader_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 2, []string{"orders"})
	var on atomic.Bool
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceInOrder(t.Context(), spread("orders", 10)))
	var key string
	for i := 0; ; i++ {
		key = "k" + strconv.Itoa(i)
		at, ok := p.inOrder.partitioners.fixed(ToSarama(keyed("orders", key, 0, 1)[0]), []int32{0, 1})
		require.True(t, ok)
		if at.id == 0 {
			break
		}
	}
	leaderless(cluster, &on, brokers[0], 2, func(_ string, p int32) bool { return p == 1 })
	on.Store(true)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 1})
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", key, 0, 2)))
}

// With a partitioner that does not go by the key, only one partition gets messages of a key.
func TestProduceInOrder_RoundRobin_O09(t *testing.T) {
	cluster, brokers := fakeCluster(t, 2, []string{"orders"})
	sc := settings()
	sc.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	client, err := sarama.NewClient(brokers, sc)
	require.NoError(t, err)
	defer client.Close()
	p, err := New(client)
	require.NoError(t, err)
	defer p.Close()
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Partitions: []int32{0}, Err: kerr.NotEnoughReplicas, Count: -1})
	errs := p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 4))
	failed := false
	for i, err := range errs {
		failed = failed || err != nil
		require.False(t, failed && err == nil, "message %d is in the log, an earlier one of its key is not", i)
	}
}

// A message behind a failed one has a partition too: a later message of its key in another partition
// is not sent.
func TestProduceInOrder_RoundRobinBehindFailed_O09(t *testing.T) {
	_, brokers := fakeCluster(t, 2, []string{"orders"})
	p := openProducer(t, brokers, func(sc *sarama.Config) {
		sc.Producer.Partitioner = sarama.NewRoundRobinPartitioner
	})
	var msgs []*idem.Message
	for i, key := range []string{"b", "c", "k", "k"} {
		msgs = append(msgs, keyed("orders", key, i, 1)...)
	}
	msgs[0].Time = time.UnixMilli(-1)
	errs := p.ProduceInOrder(t.Context(), msgs)
	require.ErrorIs(t, errs[0], idem.ErrRefused)
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], errBehindFailed)
	require.ErrorIs(t, errs[3], errBehindFailed)
}

// A message that sarama cannot encode fails alone.
func TestProduceInOrder_NotEncodable(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders", "other"})
	p := openProducer(t, brokers)
	msgs := append(keyed("orders", "a", 0, 2), keyed("other", "a", 0, 1)...)
	msgs[0].Time = time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)
	errs := p.ProduceInOrder(t.Context(), msgs)
	require.ErrorIs(t, errs[0], idem.ErrRefused)
	require.ErrorIs(t, errs[1], errBehindFailed)
	require.NoError(t, errs[2])
	require.Equal(t, batchRefused, verdictOf(sarama.PacketEncodingError{Info: "too large"}))
}

type stamp struct{}

func (stamp) OnSend(m *sarama.ProducerMessage) {
	m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte("by"), Value: []byte("interceptor")})
}

// Interceptors see the messages of ProduceEach only, so ProduceInOrder refuses to go past them.
func TestProduceInOrder_Interceptors(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	sc := settings()
	sc.Producer.Interceptors = []sarama.ProducerInterceptor{stamp{}}
	client, err := sarama.NewClient(brokers, sc)
	require.NoError(t, err)
	defer client.Close()
	p, err := New(client)
	require.NoError(t, err)
	defer p.Close()
	require.ErrorIs(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 1, 1))[0], errOnlyEach)
	noErrors(t, p.ProduceEach(t.Context(), keyed("orders", "a", 0, 1)))
	require.Len(t, readAll(t, brokers, "orders", 1)[0].Headers, 1)
}

// A first message without a key does not hide that the partition takes no records.
func TestProduceInOrder_KeylessFirst_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	msgs := append([]*idem.Message{{Topic: "orders", Value: []byte("x")}}, keyed("orders", "a", 1, 1)...)
	require.ErrorIs(t, p.ProduceInOrder(t.Context(), msgs)[1], sarama.ErrNotEnoughReplicas)
	require.ErrorIs(t, p.ProduceInOrder(t.Context(), msgs)[0], errPartitionAway)
}

// A broker that does not answer the question for a producer ID delays a call for a moment. The next
// call takes the answer.
func TestProduceInOrder_NoProducerID_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers) // sarama has its own ID by now
	awake := make(chan struct{})
	cluster.ControlKey(int16(kmsg.InitProducerID), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() { <-awake })
		return nil, nil, false
	})
	began := time.Now()
	require.ErrorIs(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 1))[0], errBrokersSilent)
	require.Less(t, time.Since(began), 2*askWait)
	close(awake)
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 1)))
}

// The leader of a partition moves between two calls.
func TestProduceInOrder_LeaderMoves_O10(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	require.NoError(t, cluster.MoveTopicPartition("orders", 0, 0))
	p := openProducer(t, cluster.ListenAddrs())
	for i := range int32(4) {
		noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", int(i), 1)))
		require.NoError(t, cluster.MoveTopicPartition("orders", 0, (i+1)%2))
	}
}

// At the first look at a topic, one of its partitions has no leader. The other takes its messages.
func TestProduceInOrder_FirstLookLeaderless_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 2, []string{"orders"})
	var on atomic.Bool
	leaderless(cluster, &on, brokers[0], 2, func(_ string, p int32) bool { return p == 1 })
	on.Store(true)
	for name, produce := range map[string]func(*Producer, []*idem.Message) []error{
		"in order": func(p *Producer, msgs []*idem.Message) []error { return p.ProduceInOrder(t.Context(), msgs) },
		"each":     func(p *Producer, msgs []*idem.Message) []error { return p.ProduceEach(t.Context(), msgs) },
	} {
		p := openProducer(t, brokers)
		good := 0
		for i, err := range produce(p, spread("orders", 20)) {
			at, ok := p.inOrder.partitioners.fixed(ToSarama(spread("orders", 20)[i]), []int32{0, 1})
			require.True(t, ok)
			require.Equal(t, at.id == 0, err == nil, "%s: %v", name, err)
			if err == nil {
				good++
			}
		}
		require.Positive(t, good)
	}
}
