package publish

import (
	"io"
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

// TestProduceEach_PartitionAway_O10: a partition that takes nothing holds up the messages for
// others once, not in each call. It is found out soon that it is back, and then all of its messages
// arrive, in their order.
func TestProduceEach_PartitionAway_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders", "away"})
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "away", Err: kerr.NotEnoughReplicas, Count: -1})
	p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Producer.Retry.Max, sc.Producer.Retry.Backoff = 30, 100*time.Millisecond })
	call := func(n int) (took time.Duration, arrived int) {
		began := time.Now()
		errs := p.ProduceEach(t.Context(), append(messages("orders", n*10, n*10+10), messages("away", 0, 50)...))
		noErrors(t, errs[:10])
		for _, err := range errs[10:] {
			require.False(t, isAny(err, idem.ErrTooLarge, idem.ErrRefused, idem.ErrNoTopic), "%v", err)
			if err == nil {
				arrived++
			}
		}
		return time.Since(began), arrived
	}
	took, arrived := call(0)
	t.Logf("the first call took %s", took)
	require.Greater(t, took, 2*time.Second, "sarama tries for a while")
	require.Zero(t, arrived)
	var all time.Duration
	for n := 1; n <= 12; n++ {
		took, arrived := call(n)
		require.Less(t, took, 2*time.Second)
		require.Zero(t, arrived)
		all += took
	}
	t.Logf("twelve more took %s", all)
	require.Less(t, all, 6*time.Second)
	p.away.mu.Lock()
	require.LessOrEqual(t, p.away.probes, 1)
	p.away.mu.Unlock()
	fault.Remove()
	n := 13
	require.Eventually(t, func() bool {
		_, arrived := call(n)
		n++
		return arrived == 50
	}, soon, poll)
	require.Empty(t, p.away.probing)
	require.Zero(t, p.away.probes)
	there := values(t, brokers, "away")
	require.Len(t, there, 50)
	require.Zero(t, p.budget.Used())
}

// TestProduceEach_DeletedWhileAway_O10: a topic is deleted while a partition of it takes nothing.
// When the topic is there again, the partition is tried again.
func TestProduceEach_DeletedWhileAway_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"away"})
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "away", Err: kerr.NotEnoughReplicas, Count: -1})
	p := openProducer(t, brokers)
	require.Error(t, p.ProduceEach(t.Context(), messages("away", 0, 1))[0])
	require.True(t, p.away.holds(partition{"away", 0}))
	admin := testenv.KafkaAdmin(t, brokers)
	require.NoError(t, admin.DeleteTopic("away"))
	require.Error(t, p.ProduceEach(t.Context(), messages("away", 0, 1))[0], "the probe")
	fault.Remove()
	require.NoError(t, admin.CreateTopic("away", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	require.Eventually(t, func() bool {
		return p.ProduceEach(t.Context(), messages("away", 0, 1))[0] == nil
	}, soon, poll)
}

// The result of a message whose topic is gone asks no broker. Otherwise each result would wait for
// those before it, and those of all other topics too.
func TestProduceEach_ResultsOfADeletedTopic_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"stock"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("stock", 0, 1)))
	require.NoError(t, testenv.KafkaAdmin(t, brokers).DeleteTopic("stock"))
	require.Error(t, p.client.RefreshMetadata("stock"))
	var asked atomic.Int64
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	for _, m := range messages("stock", 0, 100) {
		p.away.note(ToSarama(m), io.EOF, nil)
		p.away.noteSilence(ToSarama(m))
	}
	require.Zero(t, asked.Load())
	require.Empty(t, p.away.probing)
}

// TestProduceEach_BrokerSilent_O10: one broker of two takes connections and does not answer.
// Messages for the other are held up until a call has lost its patience, and no longer.
func TestProduceEach_BrokerSilent_O10(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "orders", "away"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	require.NoError(t, cluster.MoveTopicPartition("orders", 0, 0))
	require.NoError(t, cluster.MoveTopicPartition("away", 0, 1))
	p := openProducer(t, cluster.ListenAddrs())
	p.wait = time.Second
	noErrors(t, p.ProduceEach(t.Context(), append(messages("orders", 0, 1), messages("away", 0, 1)...)))
	awake := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if r.(*kmsg.ProduceRequest).Topics[0].Topic == "away" || cluster.CurrentNode() == 1 {
			cluster.SleepControl(func() { <-awake })
		}
		return nil, nil, false
	})
	began := time.Now()
	for n := range 5 {
		errs := p.ProduceEach(t.Context(), append(messages("orders", n*10, n*10+10), messages("away", 0, 50)...))
		noErrors(t, errs[:10])
		for _, err := range errs[10:] {
			require.Error(t, err)
		}
	}
	took := time.Since(began)
	close(awake)
	t.Logf("five calls took %s", took)
	require.Less(t, took, 4*time.Second)
	require.Eventually(t, func() bool {
		for _, err := range p.ProduceEach(t.Context(), messages("away", 0, 50)) {
			if err != nil {
				return false
			}
		}
		return true
	}, soon, poll)
}
