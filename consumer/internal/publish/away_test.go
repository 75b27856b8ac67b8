package publish

import (
	"io"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
)

// TestProduceEach_PartitionAway_O10: a partition that takes no records holds up the messages for
// others once, not in each call. A probe finds out soon that the partition is back. Then all of its
// messages arrive, in their order.
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
	require.LessOrEqual(t, len(p.away.probes), 1)
	p.away.mu.Unlock()
	fault.Remove()
	n := 13
	require.Eventually(t, func() bool {
		_, arrived := call(n)
		n++
		return arrived == 50
	}, soon, poll)
	require.Empty(t, p.away.byTopic)
	require.Empty(t, p.away.probes)
	there := values(t, brokers, "away")
	require.Len(t, there, 50)
	require.Zero(t, p.budget.Used())
}

// TestProduceEach_DeletedWhileAway_O10: a topic is deleted while a partition of it takes no
// records. When the topic is there again, the partition is tried again.
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

// The result of a message to a deleted topic asks no broker. Otherwise each result would wait for
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
	failAll(p, messages("stock", 0, 100))
	require.Zero(t, asked.Load())
	require.ErrorIs(t, p.ProduceEach(t.Context(), messages("stock", 0, 1))[0], idem.ErrNoTopic)
	require.Empty(t, p.topics.partitions("stock"))
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

// onlyConfig is a client that answers no other question.
type onlyConfig struct {
	sarama.Client
	conf *sarama.Config
}

func (c onlyConfig) Config() *sarama.Config { return c.conf }

// TestAway_Forgets: a partition that no message tries is away for some minutes only. Its topic may
// have been deleted for good, and then no message would ever test the partition.
func TestAway_Forgets(t *testing.T) {
	for name, ask := range map[string]func(a *awayPartitions){
		"a result":            func(a *awayPartitions) { a.note(ToSarama(messages("other", 0, 1)[0]), []int32{0}, io.EOF, nil) },
		"an ordered call":     func(a *awayPartitions) { a.holds(partition{"orders", 0}) },
		"a call of its topic": func(a *awayPartitions) { (&heldBack{s: &sender{away: a}}).split(t.Context(), "stock", []int32{0}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAwayPartitions(onlyConfig{conf: settings()})
				all := []int32{0, 1, 2}
				for _, m := range messages("stock", 0, 20) {
					a.note(ToSarama(m), all, io.EOF, nil)
				}
				require.Len(t, a.byTopic["stock"], 3)
				time.Sleep(forgetAfter - time.Minute)
				probed, held, probe := a.decide(ToSarama(messages("stock", 0, 1)[0]), all)
				require.True(t, held && probe)
				ask(a)
				require.Len(t, a.byTopic["stock"], 3)
				time.Sleep(2 * forgetAfter)
				ask(a)
				require.Len(t, a.byTopic["stock"], 1, "a probe is in flight")
				require.True(t, a.holds(probed))
				a.note(nil, nil, io.EOF, &probed)
				time.Sleep(forgetAfter - time.Minute)
				require.True(t, a.holds(probed), "it was tried")
				time.Sleep(2 * time.Minute)
				ask(a)
				require.Empty(t, a.byTopic["stock"])
			})
		})
	}
}

// TestAway_OtherTopics: a partition that is away has no cost for the messages of other topics.
func TestAway_OtherTopics(t *testing.T) {
	chosen := 0
	conf := settings()
	conf.Producer.Partitioner = func(topic string) sarama.Partitioner {
		chosen++
		return sarama.NewMurmur2Partitioner(topic)
	}
	a := newAwayPartitions(onlyConfig{conf: conf})
	a.note(ToSarama(messages("stock", 0, 1)[0]), []int32{0}, io.EOF, nil)
	require.Equal(t, 1, chosen)
	h := &heldBack{s: &sender{away: a}, msgs: messages("orders", 0, 3)}
	require.Equal(t, []int{0, 1, 2}, h.split(t.Context(), "orders", []int32{0}, []int{0, 1, 2}))
	require.Equal(t, 1, chosen)
}

// TestAway_Decide: a partition that is away has one probe at a time, and all have a bounded number.
func TestAway_Decide(t *testing.T) {
	a := newAwayPartitions(onlyConfig{conf: settings()})
	fail := func(topic string) *sarama.ProducerMessage {
		m := ToSarama(messages(topic, 0, 1)[0])
		a.note(m, []int32{0}, io.EOF, nil)
		return m
	}
	m := fail("orders")
	at, held, probe := a.decide(m, []int32{0})
	require.True(t, held && probe)
	for range 2 {
		_, held, probe = a.decide(m, []int32{0})
		require.True(t, held && !probe, "a probe is in flight")
		a.noteSilence(m, []int32{0})
		a.note(m, []int32{0}, io.EOF, nil)
	}
	for i := range 2 * maxProbes {
		_, held, probe := a.decide(fail(strconv.Itoa(i)), []int32{0})
		require.True(t, held)
		require.Equal(t, i < maxProbes-1, probe, i)
	}
	a.note(m, nil, io.EOF, &at)
	_, held, probe = a.decide(m, []int32{0})
	require.True(t, held && probe, "the last one has ended")
	for _, err := range []error{nil, sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrUnknownTopicOrPartition} {
		require.True(t, a.holds(partition{fail("stock").Topic, 0}))
		a.note(ToSarama(messages("stock", 0, 1)[0]), []int32{0}, err, nil)
		require.False(t, a.holds(partition{"stock", 0}), "%v", err)
	}
}
