package publish

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// keyed returns n messages of one key, with values "<key>-<from>" and on.
func keyed(topic, key string, from, n int) (all []*idem.Message) {
	for i := from; i < from+n; i++ {
		all = append(all, &idem.Message{Topic: topic, Key: []byte(key), Value: fmt.Appendf(nil, "%s-%d", key, i)})
	}
	return all
}

// sentBatches are the record batches that a cluster gets.
type sentBatches struct {
	mu   sync.Mutex
	list []kmsg.RecordBatch
}

// watchBatches notes all record batches from now on.
func watchBatches(t *testing.T, cluster *kfake.Cluster) *sentBatches {
	s := &sentBatches{}
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				var b kmsg.RecordBatch
				if err := b.ReadFrom(p.Records); err != nil {
					t.Errorf("record batch: %v", err)
				}
				s.list = append(s.list, b)
			}
		}
		return nil, nil, false
	})
	return s
}

// numbers are the count of records, the first sequence number and the producer ID of each batch.
func (s *sentBatches) numbers() (all [][3]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.list {
		all = append(all, [3]int64{int64(b.NumRecords), int64(b.FirstSequence), b.ProducerID})
	}
	return all
}

// firstsOf returns the values of each key in the order of their first appearance.
func firstsOf(t *testing.T, brokers []string, topic string) (firsts map[string][]string, repeats int) {
	t.Helper()
	total := 0
	for _, n := range values(t, brokers, topic) {
		total += n
	}
	firsts, seen := map[string][]string{}, map[string]bool{}
	for _, m := range readAll(t, brokers, topic, total) {
		if v := string(m.Value); seen[v] {
			repeats++
		} else {
			seen[v] = true
			firsts[string(m.Key)] = append(firsts[string(m.Key)], v)
		}
	}
	return firsts, repeats
}

func TestVerdictOf(t *testing.T) {
	for want, errs := range map[batchVerdict][]error{
		batchAppended: {nil, sarama.ErrDuplicateSequenceNumber},
		batchTooLarge: {sarama.ErrMessageSizeTooLarge, fmt.Errorf("wrapped: %w", sarama.ErrMessageSetSizeTooLarge)},
		batchRefused:  {sarama.ErrInvalidRecord, sarama.ErrTopicAuthorizationFailed, sarama.ErrPolicyViolation},
		batchUnordered: {sarama.ErrOutOfOrderSequenceNumber, sarama.ErrUnknownProducerID,
			sarama.ErrInvalidProducerEpoch},
		batchUnknown: {io.EOF, errNoAnswer, sarama.ErrRequestTimedOut, sarama.ErrNotLeaderForPartition,
			sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrUnknown, sarama.KError(999)},
	} {
		for _, err := range errs {
			require.Equal(t, want, verdictOf(err), "%v", err)
		}
	}
}

// The messages of a call for a partition are one record batch. Their headers, keys and times arrive
// as those of ProduceEach do.
func TestProduceInOrder_OneBatch_O04(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	sent := watchBatches(t, cluster)
	p := openProducer(t, brokers)
	at := time.UnixMilli(1_700_000_000_123)
	msgs := append(keyed("orders", "a", 0, 3), keyed("orders", "b", 0, 2)...)
	msgs[1].Headers, msgs[1].Time = []idem.Header{{Key: "h", Value: []byte("v")}}, at
	msgs = append(msgs, &idem.Message{Topic: "orders", Key: []byte("tombstone")})
	noErrors(t, p.ProduceInOrder(t.Context(), msgs))
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 3, 2)))
	numbers := sent.numbers()
	require.Len(t, numbers, 2)
	require.Equal(t, []int64{6, 0}, numbers[0][:2])
	require.Equal(t, []int64{2, 6}, numbers[1][:2])
	require.Equal(t, numbers[0][2], numbers[1][2], "one producer ID")
	all := readAll(t, brokers, "orders", 8)
	require.Equal(t, "a-1", string(all[1].Value))
	require.True(t, at.Equal(all[1].Timestamp), "%s", all[1].Timestamp)
	require.WithinDuration(t, time.Now(), all[0].Timestamp, time.Minute)
	require.Equal(t, []*sarama.RecordHeader{{Key: []byte("h"), Value: []byte("v")}}, all[1].Headers)
	require.Nil(t, all[5].Value)
}

// A key has the partition that ProduceEach gives it.
func TestProduceInOrder_SamePartitions(t *testing.T) {
	_, brokers := fakeCluster(t, 6, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceEach(t.Context(), messages("orders", 0, 50)))
	noErrors(t, p.ProduceInOrder(t.Context(), messages("orders", 0, 50)))
	partitions := map[string]map[int32]int{}
	for _, m := range readAll(t, brokers, "orders", 100) {
		if partitions[string(m.Key)] == nil {
			partitions[string(m.Key)] = map[int32]int{}
		}
		partitions[string(m.Key)][m.Partition]++
	}
	require.Len(t, partitions, 50)
	for key, counts := range partitions {
		require.Len(t, counts, 1, key)
	}
}

// Messages beyond the size of one batch go in several, each behind the acknowledgement of the one
// before. A refused batch is halved, down to the message that is to blame. Those behind it in its
// partition are not sent.
func TestProduceInOrder_Sizes_O09(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"large", "small", "other"})
	p := openProducer(t, brokers)
	msgs := keyed("large", "a", 0, 30)
	for _, m := range msgs {
		m.Value = append(m.Value, strings.Repeat("x", 100_000)...)
	}
	sent := watchBatches(t, cluster)
	noErrors(t, p.ProduceInOrder(t.Context(), msgs))
	require.Len(t, sent.numbers(), 4)

	limit := "10000"
	admin := testenv.KafkaAdmin(t, brokers)
	require.NoError(t, admin.AlterConfig(sarama.TopicResource, "small", map[string]*string{"max.message.bytes": &limit}, false))
	msgs = append(keyed("small", "a", 0, 10), keyed("other", "a", 0, 10)...)
	msgs[6].Value = []byte(strings.Repeat("x", 20_000))
	errs := p.ProduceInOrder(t.Context(), msgs)
	noErrors(t, errs[:6])
	require.ErrorIs(t, errs[6], sarama.ErrMessageSizeTooLarge)
	for _, err := range errs[7:10] {
		require.ErrorIs(t, err, errBehindFailed)
	}
	noErrors(t, errs[10:])
	firsts, repeats := firstsOf(t, brokers, "small")
	require.Equal(t, []string{"a-0", "a-1", "a-2", "a-3", "a-4", "a-5"}, firsts["a"])
	require.Zero(t, repeats)
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("small", "a", 7, 1)))
}

// A message that exceeds sarama's limit holds up those behind it in its partition.
func TestProduceInOrder_TooLargeForSarama_O09(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders", "other"})
	p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Producer.MaxMessageBytes = 1000 })
	msgs := append(keyed("orders", "a", 0, 3), keyed("other", "a", 0, 1)...)
	msgs[1].Value = []byte(strings.Repeat("x", 2000))
	errs := p.ProduceInOrder(t.Context(), msgs)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], idem.ErrTooLarge)
	require.ErrorIs(t, errs[2], errBehindFailed)
	require.NoError(t, errs[3])
}

// A missing topic fails its own messages only.
func TestProduceInOrder_NoTopic(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	errs := p.ProduceInOrder(t.Context(), append(keyed("missing", "a", 0, 2), keyed("orders", "a", 0, 2)...))
	require.ErrorIs(t, errs[0], idem.ErrNoTopic)
	require.ErrorIs(t, errs[1], idem.ErrNoTopic)
	noErrors(t, errs[2:])
}

// A batch that a broker did not take for a moment keeps its number. A batch without an answer to the
// end takes its producer ID along: with the same number, the broker would take the next batch for a
// copy.
func TestProduceInOrder_NumbersAfterFailures_O08_K35(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	sent := watchBatches(t, cluster)
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 2)))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 2})
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 2, 2)))
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1})
	for _, err := range p.ProduceInOrder(t.Context(), keyed("orders", "a", 4, 2)) {
		require.ErrorIs(t, err, sarama.ErrRequestTimedOut)
	}
	fault.Remove()
	numbers := sent.numbers()
	require.ErrorIs(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 6, 2))[0], errPartitionAway)
	noErrors(t, p.ProduceEach(t.Context(), keyed("orders", "a", 4, 2)))
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 6, 2)))
	all := sent.numbers()
	numbers = append(numbers, all[len(all)-1])
	id := numbers[0][2]
	require.Equal(t, [3]int64{2, 0, id}, numbers[0])
	for _, n := range numbers[1:4] {
		require.Equal(t, [3]int64{2, 2, id}, n)
	}
	for _, n := range numbers[4 : len(numbers)-1] {
		require.Equal(t, [3]int64{2, 4, id}, n)
	}
	require.Len(t, numbers, 4+orderedAttempts+1)
	last := numbers[len(numbers)-1]
	require.NotEqual(t, id, last[2])
	require.Equal(t, []int64{2, 0}, last[:2])
}

// A broker that has forgotten the producer refuses its number. The next call begins with another ID.
func TestProduceInOrder_ForgottenProducer_K35(t *testing.T) {
	_, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 2)))
	p.inOrder.id.next[partition{"orders", 0}] = 77
	for _, err := range p.ProduceInOrder(t.Context(), keyed("orders", "a", 2, 2)) {
		require.ErrorIs(t, err, sarama.ErrOutOfOrderSequenceNumber)
	}
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 2, 2)))
	require.Len(t, values(t, brokers, "orders"), 4)
	p.inOrder.id.next[partition{"orders", 0}] = maxSequence + 1
	id := p.inOrder.id.id
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 4, 1)))
	require.NotEqual(t, id, p.inOrder.id.id, "numbers are used up")
}

// Connections break after the broker has appended and before it has answered. In the log of each
// key, every message is behind the earlier ones of its call, and each acknowledged message is there
// once (KIP-98).
func TestProduceInOrder_ConnectionBreaks_O08_O09_K35(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	f := &flaky{rand: rand.New(rand.NewPCG(seed, 8))}
	_, brokers := fakeCluster(t, 3, []string{"orders"}, kfake.ListenFn(f.listen))
	p := openProducer(t, brokers)
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 1)))
	f.mu.Lock()
	f.on = true
	f.mu.Unlock()
	const calls, keys, size = 200, 6, 10
	next := [keys]int{}
	acked := 0
	for range calls {
		var msgs []*idem.Message
		for k := range keys {
			msgs = append(msgs, keyed("orders", strconv.Itoa(k), next[k], size)...)
		}
		errs := p.ProduceInOrder(t.Context(), msgs)
		for k := range keys {
			of := errs[k*size : (k+1)*size]
			sent := slices.IndexFunc(of, func(err error) bool { return err != nil })
			if sent < 0 {
				sent = size
			} else if p.ProduceEach(t.Context(), keyed("orders", strconv.Itoa(k), next[k]+sent, 1))[0] == nil {
				sent++ // a partition that took no records is tried with ProduceEach, as a relay does
			}
			next[k] += sent
			acked += sent
		}
	}
	f.mu.Lock()
	f.on = false
	cuts := f.cuts
	f.mu.Unlock()
	require.Positive(t, cuts)
	firsts, repeats := firstsOf(t, brokers, "orders")
	t.Logf("%d connections were cut, %d acknowledgements, %d repeats", cuts, acked, repeats)
	require.Greater(t, acked, calls*keys*size/2)
	for k := range keys {
		key := strconv.Itoa(k)
		require.GreaterOrEqual(t, len(firsts[key]), next[k], "acknowledged and lost")
		for i, v := range firsts[key] {
			require.Equal(t, fmt.Sprintf("%s-%d", key, i), v)
		}
	}
}

// The end of the context ends the call, also while a broker is silent. The batch under way keeps its
// number for itself.
func TestProduceInOrder_ContextEnds_O15(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders"})
	p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Net.ReadTimeout = 2 * time.Second })
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 1)))
	awake := make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cancel(errBrokersSilent) // the batch is under way
		cluster.SleepControl(func() { <-awake })
		return nil, nil, false
	})
	began := time.Now()
	for _, err := range p.ProduceInOrder(ctx, keyed("orders", "a", 1, 2)) {
		require.ErrorIs(t, err, errBrokersSilent)
	}
	require.Less(t, time.Since(began), time.Second)
	require.True(t, p.inOrder.id.ended[partition{"orders", 0}])
	close(awake)
	require.Eventually(t, func() bool {
		return p.ProduceEach(t.Context(), keyed("orders", "a", 1, 1))[0] == nil
	}, soon, poll)
	noErrors(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 2, 1)))
	firsts, _ := firstsOf(t, brokers, "orders")
	require.Equal(t, "a-0 a-1 a-2", strings.Join(firsts["a"], " "))
}

// A partition that takes no records fails its messages at once after ProduceEach has found out.
func TestProduceInOrder_PartitionAway_O10(t *testing.T) {
	cluster, brokers := fakeCluster(t, 1, []string{"orders", "away"})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "away", Err: kerr.NotEnoughReplicas, Count: -1})
	p := openProducer(t, brokers)
	require.Error(t, p.ProduceEach(t.Context(), keyed("away", "a", 0, 1))[0])
	began := time.Now()
	errs := p.ProduceInOrder(t.Context(), append(keyed("away", "a", 0, 2), keyed("orders", "a", 0, 2)...))
	require.ErrorIs(t, errs[0], errPartitionAway)
	require.ErrorIs(t, errs[1], errBehindFailed)
	noErrors(t, errs[2:])
	require.Less(t, time.Since(began), time.Second)
}

// A broker of two takes connections and does not answer. The first call waits for it until its
// time-out. Later calls send the messages for the other broker at once.
func TestProduceInOrder_BrokerSilent_O10(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "orders", "away"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	require.NoError(t, cluster.MoveTopicPartition("orders", 0, 0))
	require.NoError(t, cluster.MoveTopicPartition("away", 0, 1))
	p := openProducer(t, cluster.ListenAddrs(), func(sc *sarama.Config) { sc.Net.ReadTimeout = 3 * time.Second })
	both := func(n int) []error {
		return p.ProduceInOrder(t.Context(), append(keyed("orders", "a", 2*n, 2), keyed("away", "a", 2*n, 2)...))
	}
	noErrors(t, both(0))
	p.wait = time.Second
	awake := make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if cluster.CurrentNode() == 1 {
			cluster.SleepControl(func() { <-awake })
		}
		return nil, nil, false
	})
	errs := both(1)
	noErrors(t, errs[:2])
	for _, err := range errs[2:] {
		require.ErrorIs(t, err, errBrokersSilent)
	}
	began := time.Now()
	for n := 2; n < 5; n++ {
		errs := both(n)
		noErrors(t, errs[:2])
		require.ErrorIs(t, errs[2], errPartitionAway)
	}
	require.Less(t, time.Since(began), time.Second)
	close(awake)
	require.Eventually(t, func() bool {
		return p.ProduceEach(t.Context(), keyed("away", "a", 2, 1))[0] == nil
	}, soon, poll)
	noErrors(t, both(5))
}

// Calls at once go one after the other. A closed producer refuses.
func TestProduceInOrder_Concurrent_Closed(t *testing.T) {
	_, brokers := fakeCluster(t, 3, []string{"orders"})
	p, err := Open(t.Context(), brokers, settings())
	require.NoError(t, err)
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			for i := range 10 {
				for _, err := range p.ProduceInOrder(t.Context(), keyed("orders", strconv.Itoa(k), 5*i, 5)) {
					if err != nil {
						t.Errorf("%v", err)
					}
				}
			}
		})
	}
	all.Wait()
	firsts, repeats := firstsOf(t, brokers, "orders")
	require.Zero(t, repeats)
	for k := range 8 {
		require.Len(t, firsts[strconv.Itoa(k)], 50)
	}
	p.Close()
	require.ErrorIs(t, p.ProduceInOrder(t.Context(), keyed("orders", "a", 0, 1))[0], errClosed)
	require.Empty(t, p.ProduceInOrder(t.Context(), nil))
}

// The real broker appends a batch once, with and without compression.
func TestProduceInOrder_Kafka_O04(t *testing.T) {
	brokers := testenv.Kafka(t)
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionZSTD} {
		topic := testenv.CreateTopic(t, brokers, 3)
		p := openProducer(t, brokers, func(sc *sarama.Config) { sc.Producer.Compression = codec })
		for i := range 5 {
			msgs := keyed(topic, "a", 100*i, 100)
			noErrors(t, p.ProduceInOrder(t.Context(), append(msgs, keyed(topic, "b", 100*i, 100)...)))
		}
		firsts, repeats := firstsOf(t, brokers, topic)
		require.Zero(t, repeats)
		for _, key := range []string{"a", "b"} {
			require.Len(t, firsts[key], 500)
			for i, v := range firsts[key] {
				require.Equal(t, fmt.Sprintf("%s-%d", key, i), v)
			}
		}
	}
}
