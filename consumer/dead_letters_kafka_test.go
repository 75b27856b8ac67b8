package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
)

// hostileHeaders are names that a producer may have used for its own ends, ours among them. Names
// that begin with idem-original-idem- are left out: they look like the headers that a dead letter
// renames.
var hostileHeaders = []string{
	"", "h", "h", "trace", "idem-", "idem-x", "IDEM-error", "idem-original-", "idem-original-x", "\xff\x00", "ключ",
	deadletter.HeaderTopic, deadletter.HeaderPartition, deadletter.HeaderOffset, deadletter.HeaderTime, deadletter.HeaderGroup, deadletter.HeaderEventID,
	deadletter.HeaderErrorClass, deadletter.HeaderValueOmitted, deadletter.HeaderGeneration, deadletter.HeaderRetry, deadletter.HeaderDue,
}

// hostileRecord is made of all values that Kafka allows: nil, empty, any bytes, repeated names,
// times long ago.
func hostileRecord(rnd *rand.Rand, topic string, i int) *sarama.ProducerMessage {
	some := func() []byte {
		switch rnd.IntN(5) {
		case 0:
			return nil
		case 1:
			return []byte{}
		}
		b := make([]byte, []int{1, 9, 300}[rnd.IntN(3)])
		for i := range b {
			b[i] = byte(rnd.UintN(256))
		}
		return b
	}
	m := &sarama.ProducerMessage{Topic: topic, Timestamp: time.UnixMilli(time.Now().UnixMilli() - rnd.Int64N(86_400_000))}
	switch rnd.IntN(6) {
	case 0:
		m.Timestamp = time.UnixMilli(1) // for sarama 0 is no time
	case 1:
		m.Timestamp = time.UnixMilli(1 + rnd.Int64N(1e12))
	}
	if key := some(); key != nil {
		m.Key = sarama.ByteEncoder(key)
	}
	if value := some(); value != nil {
		m.Value = sarama.ByteEncoder(value)
	}
	for range rnd.IntN(6) {
		name := hostileHeaders[rnd.IntN(len(hostileHeaders))]
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(name), Value: some()})
	}
	if rnd.IntN(3) > 0 {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte("event-id"), Value: fmt.Append(nil, i)})
	}
	return m
}

// TestKafka_DeadLettersAreReadBack_T09: random records, with and without identity, go through the
// broker, the consumer and the broker again. Parse gives back the record that the consumer got,
// byte for byte. Parse does the same for the copy that Redrive makes.
func TestKafka_DeadLettersAreReadBack_T09(t *testing.T) {
	t.Parallel()
	n := 500
	if os.Getenv("IDEM_SOAK") != "" {
		n = 10_000
	}
	seed := rand.Uint64() >> 32
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "IDEM_SEED")
	}
	t.Logf("repeat with IDEM_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 3, map[string]string{"retention.ms": "-1"}) // keeps old records
	cfg := Config{Brokers: brokers, Group: "g-" + topic, Topics: []string{topic}, CreateDeadLetterTopics: &TopicSpec{}}
	var msgs []*sarama.ProducerMessage
	for i := range n {
		msgs = append(msgs, hostileRecord(rnd, topic, i))
	}
	produce(t, brokers, msgs...)
	type place struct {
		partition int32
		offset    int64
	}
	sources := map[place]*idem.Message{}
	for _, s := range readAll(t, brokers, topic, n) {
		sources[place{s.Partition, s.Offset}] = FromSarama(s)
	}
	m := start(t, cfg, routed(func(context.Context, *idem.Message) error { return idem.Permanent(errors.New("broken")) },
		idem.Tombstones(), idem.Decode(func(*idem.Message, any) error { return nil })))
	letters := readAll(t, brokers, topic+"."+cfg.Group+".dlq", n)
	require.NoError(t, m.end())
	classes := map[idem.Class]int{}
	for _, record := range letters {
		l, err := deadletter.Parse(FromSarama(record))
		require.NoError(t, err)
		at := place{l.Message.Partition, l.Message.Offset}
		want := sources[at]
		require.NotNil(t, want, "two dead letters of one record, or of none: %v", at)
		delete(sources, at)
		requireSameMessage(t, want, l.Message)
		copied, err := l.Redrive(dedup.Position{Generation: 1})
		require.NoError(t, err)
		again, err := deadletter.Parse(copied)
		require.NoError(t, err)
		requireSameMessage(t, want, again.Message)
		classes[l.Class]++
	}
	t.Logf("soak: %s seed=%d size=%d kills=0 cuts=0 rebalances=0 outcome=all as they were %v", t.Name(), seed, n, classes)
	require.Len(t, classes, 2, "with and without an identity: %v", classes)
}

func requireSameMessage(t *testing.T, want, got *idem.Message) {
	t.Helper()
	require.True(t, want.Time.Equal(got.Time), "time %s, was %s", got.Time, want.Time)
	require.Equal(t, want.Topic, got.Topic)
	require.Equal(t, []any{want.Key, want.Value}, []any{got.Key, got.Value}, "key and value")
	require.Equal(t, want.Headers, got.Headers)
}

// TestKafka_AsLargeAsCanBe_T04: a record of 1 MiB minus 100 bytes, all told, is more than fits with
// the headers of a dead letter; one with room for them is copied. Both dead letters can be read.
func TestKafka_AsLargeAsCanBe_T04(t *testing.T) {
	t.Parallel()
	const limit, recordBatchV2 = 1 << 20, 2
	brokers, topic, cfg := onKafka(t, 1)
	for _, less := range []int{100, 4096} {
		m := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"), Value: sarama.ByteEncoder("")}
		m.Value = sarama.ByteEncoder(bytes.Repeat([]byte("x"), limit-less-m.ByteSize(recordBatchV2)))
		require.Equal(t, limit-less, m.ByteSize(recordBatchV2))
		produce(t, brokers, m)
	}
	sources := readAll(t, brokers, topic, 2)
	m := start(t, cfg, routed(func(context.Context, *idem.Message) error { return nil }))
	letters := readAll(t, brokers, topic+"."+cfg.Group+".dlq", 2)
	require.NoError(t, m.end())
	require.EqualValues(t, 2, committed(t, brokers, cfg.Group, topic, 0)[0])
	pointer, err := deadletter.Parse(FromSarama(letters[0]))
	require.NoError(t, err)
	require.True(t, pointer.Omitted)
	require.Equal(t, []any{topic, int64(0), []byte("k")}, []any{pointer.Message.Topic, pointer.Message.Offset, pointer.Message.Key})
	whole, err := deadletter.Parse(FromSarama(letters[1]))
	require.NoError(t, err)
	require.False(t, whole.Omitted)
	requireSameMessage(t, FromSarama(sources[1]), whole.Message)
}
