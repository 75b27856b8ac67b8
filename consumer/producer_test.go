package consumer

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer/internal/publish"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
)

var _ outbox.TopicChecker = (*Producer)(nil)

func newProducer(t *testing.T, brokers []string) *Producer {
	t.Helper()
	sc, err := DefaultSaramaConfig(Config{Group: "g"})
	require.NoError(t, err)
	client, err := sarama.NewClient(brokers, sc)
	require.NoError(t, err)
	p, err := NewProducer(client)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.Close())
		require.NoError(t, p.Close(), "twice")
		require.Error(t, p.Produce(context.Background(), &idem.Message{Topic: "x"}))
		require.NoError(t, client.Close())
	})
	return p
}

// TestNewProducer_RefusesUnsafe_K35: a client that would lose dead letters is refused.
func TestNewProducer_RefusesUnsafe_K35(t *testing.T) {
	brokers := fakeBrokers(t, 1, "a")
	for name, spoil := range map[string]func(*sarama.Config){
		"acks":      func(sc *sarama.Config) { sc.Producer.RequiredAcks, sc.Producer.Idempotent = sarama.WaitForLocal, false },
		"successes": func(sc *sarama.Config) { sc.Producer.Return.Successes = false },
		"errors":    func(sc *sarama.Config) { sc.Producer.Return.Errors = false },
	} {
		sc, err := DefaultSaramaConfig(Config{Group: "g"})
		require.NoError(t, err)
		spoil(sc)
		client, err := sarama.NewClient(brokers, sc)
		require.NoError(t, err, name)
		_, err = NewProducer(client)
		require.Error(t, err, name)
		require.NoError(t, client.Close())
	}
	_, err := NewProducer(nil)
	require.Error(t, err)
}

// TestKafka_ProducerTooLarge_T04: only a message that is too large alone is too large. Those that
// shared its batch arrive.
func TestKafka_ProducerTooLarge_T04(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 1, map[string]string{"max.message.bytes": "100000"})
	p := newProducer(t, brokers)
	var group sync.WaitGroup
	for i := range 30 { // together far beyond the limit of one batch
		group.Go(func() {
			m := &idem.Message{Topic: topic, Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte("x"), 60_000)}
			if err := p.Produce(t.Context(), m); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	err := p.Produce(t.Context(), &idem.Message{Topic: topic, Value: bytes.Repeat([]byte("x"), 200_000)})
	require.ErrorIs(t, err, idem.ErrTooLarge)
	err = p.Produce(t.Context(), &idem.Message{Topic: topic, Value: make([]byte, 65<<20)})
	require.ErrorIs(t, err, idem.ErrTooLarge, "refused by sarama, not by the broker")
	readAll(t, brokers, topic, 30)
}

// TestProducer_HonoursContext: brokers that are gone do not hold a caller longer than its context.
func TestProducer_HonoursContext(t *testing.T) {
	p := newProducer(t, fakeBrokers(t, 1, "a"))
	require.NoError(t, p.Produce(t.Context(), &idem.Message{Topic: "a"}))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	require.ErrorIs(t, p.Produce(ctx, &idem.Message{Topic: "missing"}), context.DeadlineExceeded)
	require.Less(t, time.Since(began), 2*time.Second)
}

// TestPartitioner_LikeJava_K35: the dead letters of a key lie where Java's default partitioner
// would put them. The hashes are from the tests of Kafka's own murmur2.
func TestPartitioner_LikeJava_K35(t *testing.T) {
	sc, err := DefaultSaramaConfig(Config{Group: "g"})
	require.NoError(t, err)
	p := sc.Producer.Partitioner("topic")
	for key, hash := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		for _, n := range []int32{1, 3, 12, 1000, math.MaxInt32} {
			got, err := p.Partition(&sarama.ProducerMessage{Key: sarama.StringEncoder(key)}, n)
			require.NoError(t, err)
			require.Equal(t, (hash&0x7fffffff)%n, got, "%q of %d", key, n)
		}
	}
}

// TestFromSarama_T09: nil and empty stay apart, headers keep order and copies.
func TestFromSarama_T09(t *testing.T) {
	m := FromSarama(&sarama.ConsumerMessage{
		Topic: "t", Partition: 2, Offset: 7, Key: []byte{}, Value: nil, Timestamp: time.UnixMilli(5),
		Headers: []*sarama.RecordHeader{{Key: []byte("a"), Value: nil}, nil, {Key: []byte("a"), Value: []byte{}}},
	})
	require.Equal(t, &idem.Message{
		Topic: "t", Partition: 2, Offset: 7, Key: []byte{}, Time: time.UnixMilli(5),
		Headers: []idem.Header{{Key: "a"}, {Key: "a", Value: []byte{}}},
	}, m)
	back := publish.ToSarama(m)
	require.NotNil(t, back.Key)
	require.Nil(t, back.Value)
	require.Nil(t, back.Headers[0].Value)
	require.NotNil(t, back.Headers[1].Value)
}

// The relay of an outbox looks for its topics at the start.
func TestProducer_CheckTopics(t *testing.T) {
	brokers := fakeBrokers(t, 1, "a")
	opened, err := OpenProducer(Config{Brokers: brokers})
	require.NoError(t, err)
	defer func() { require.NoError(t, opened.Close()) }()
	for _, p := range []*Producer{newProducer(t, brokers), opened} {
		require.NoError(t, p.CheckTopics(t.Context(), []string{"a"}))
		err := p.CheckTopics(t.Context(), []string{"a", "b"})
		require.ErrorIs(t, err, idem.ErrNoTopic)
		require.ErrorContains(t, err, "--create --topic b")
		require.ErrorContains(t, err, brokers[0])
	}
}
