package publish

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
)

// failAll gives the producer a bad result of each message, as the reader of sarama's results does.
func failAll(p *Producer, msgs []*idem.Message) {
	results := make(chan result, len(msgs))
	c := &call{s: &p.sender, msgs: msgs, errs: make([]error, len(msgs))}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errBrokersSilent)
	for i := range msgs {
		m := ToSarama(msgs[i])
		m.Metadata = &origin{index: i, results: results}
		p.settle(m, io.EOF)
		c.errs[i] = errNoAnswer
		c.cut(ctx, []int{i})
	}
}

// tellTopics answers all questions for metadata: leader is the leader of partition 0 of a topic.
// Without a leader the topic has no partition.
func tellTopics(t *testing.T, c *kfake.Cluster, brokers map[int32]string, leader func(topic string) (int32, bool)) (asked *atomic.Int64) {
	asked = &atomic.Int64{}
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		req := r.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for id, addr := range brokers {
			host, port := splitAddr(t, addr)
			resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Host: host, Port: port})
		}
		for _, topic := range req.Topics {
			told := kmsg.NewMetadataResponseTopic()
			told.Topic, told.ErrorCode = topic.Topic, kerr.LeaderNotAvailable.Code
			if id, ok := leader(*topic.Topic); ok {
				one := kmsg.NewMetadataResponseTopicPartition()
				one.Leader = id
				told.ErrorCode, told.Partitions = 0, append(told.Partitions, one)
			}
			resp.Topics = append(resp.Topics, told)
		}
		return resp, nil, true
	})
	return asked
}

// The result of a message asks no broker for a topic that has no partition at the moment. Otherwise
// each result would wait for those before it, and those of all other topics too.
func TestProduceEach_ResultsWithoutPartitions_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"stock"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("stock", 0, 1)))
	asked := tellTopics(t, cluster, map[int32]string{0: brokers[0]}, func(string) (int32, bool) { return 0, false })
	require.ErrorIs(t, p.client.RefreshMetadata("stock"), sarama.ErrLeaderNotAvailable)
	topics, err := p.client.Topics()
	require.NoError(t, err)
	require.Contains(t, topics, "stock", "the client knows the topic")
	before := asked.Load()
	require.Positive(t, before)
	failAll(p, messages("stock", 0, 10))
	require.Equal(t, before, asked.Load())
}

// No result waits for the lock of sarama's client. The client holds its lock until the read time-out
// while it looks for the broker with the least load, and one broker does not answer.
func TestProduceEach_ResultsClientLocked_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders", "away"})
	p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Net.ReadTimeout = 5 * time.Second })
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 1)))
	tellTopics(t, cluster, map[int32]string{0: brokers[0], 7: testenv.SilentAddr(t)}, func(topic string) (int32, bool) {
		if topic == "away" {
			return 7, true
		}
		return 0, true
	})
	var asking sync.WaitGroup
	defer asking.Wait()
	locked := func() bool {
		if p.client.RefreshMetadata("away") != nil {
			return false
		}
		if _, err := p.client.Leader("away", 0); err != nil { // begins to connect
			return false
		}
		asking.Go(func() { p.client.LeastLoadedBroker() })         // reads the client, and waits for the broker
		asking.Go(func() { _ = p.client.RefreshBrokers(brokers) }) // writes
		for range 20 {
			free := make(chan struct{})
			asking.Go(func() {
				p.client.Closed() // reads, but not while a writer waits
				close(free)
			})
			select {
			case <-free:
				<-time.After(time.Millisecond)
			case <-time.After(100 * time.Millisecond):
				return true
			}
		}
		return false // the writer came first
	}
	require.Eventually(t, locked, soon, poll)
	began := time.Now()
	failAll(p, messages("orders", 0, 10))
	require.Less(t, time.Since(began), time.Second)
	p.conns.Cut()
}
