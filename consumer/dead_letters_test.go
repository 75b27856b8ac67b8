package consumer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/testenv"
)

func headers(pairs ...string) (hs []sarama.RecordHeader) {
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, sarama.RecordHeader{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return hs
}

// TestKafka_BadInputs_T01: a record that can never be handled goes to the dead-letter topic byte
// for byte with its reason, and the partition moves on.
func TestKafka_BadInputs_T01(t *testing.T) {
	t.Parallel()
	longID := strings.Repeat("x", 1<<20-4096)
	inputs := []struct {
		class   idem.Class
		value   string
		headers []sarama.RecordHeader
	}{
		{idem.ClassUndecodable, "not JSON", headers("event-id", "1", "event-type", "thing")},
		{idem.ClassUndecodable, "", headers("event-id", "2", "event-type", "thing")},
		{idem.ClassUndecodable, `{"n":"text"}`, headers("event-id", "3", "event-type", "thing")},
		{idem.ClassNoID, `{"type":"thing","n":4}`, nil},
		{idem.ClassNoType, `{"event_id":"5","n":5}`, nil},
		{idem.ClassAmbiguous, `{"event_id":"6","n":6}`, headers("event-id", "other", "event-type", "thing")},
		{idem.ClassAmbiguous, `{"n":7}`, headers("event-id", "7", "event-id", "7", "event-type", "thing")},
		{idem.ClassNoID, `{"n":8}`, headers("event-id", "8\x00", "event-type", "thing")},
		{idem.ClassNoID, `{"n":9}`, headers("event-id", longID, "event-type", "thing")},
		{idem.ClassNoID, "\xff\xfe", headers("event-id", "\xff\xfe", "event-type", "thing")},
	}
	brokers, topic, cfg := onKafka(t, 1)
	var msgs []*sarama.ProducerMessage
	for i, in := range inputs {
		msgs = append(msgs, &sarama.ProducerMessage{
			Topic: topic, Key: sarama.StringEncoder(fmt.Sprint("key", i)), Value: sarama.StringEncoder(in.value), Headers: in.headers,
		})
	}
	msgs = append(msgs, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(`{"event_id":"good","type":"thing","n":1}`)})
	for _, m := range msgs { // each alone: a batch has the limit of a message
		produce(t, brokers, m)
	}

	handled := make(chan string, 10)
	r := idem.NewRouter()
	idem.On(r, "thing", func(_ context.Context, e idem.Event[struct{ N int }]) error {
		handled <- e.ID
		return nil
	})
	m := start(t, cfg, r)
	letters := readAll(t, brokers, topic+"."+cfg.Group+".dlq", len(inputs))
	require.Equal(t, "good", <-handled)
	require.NoError(t, m.end())
	require.Empty(t, handled)
	require.EqualValues(t, len(msgs), committed(t, brokers, cfg.Group, topic, 0)[0])
	for _, l := range letters {
		i, err := strconv.Atoi(header(l, deadletter.HeaderOffset))
		require.NoError(t, err)
		in := inputs[i]
		require.Equal(t, string(in.class), header(l, deadletter.HeaderErrorClass), "input %d", i)
		require.NotEmpty(t, header(l, deadletter.HeaderError))
		require.LessOrEqual(t, len(header(l, deadletter.HeaderError)), 1<<10)
		require.Equal(t, topic, header(l, deadletter.HeaderTopic))
		require.Equal(t, fmt.Sprint("key", i), string(l.Key))
		require.Equal(t, in.value, string(l.Value))
		require.NotNil(t, l.Value)
		for n, h := range in.headers {
			require.Equal(t, h, *l.Headers[n])
		}
	}
}

// TestKafka_TooLargeForALetter_T04: a record that fills the limit does not fit with the headers of
// a dead letter. A pointer to it does.
func TestKafka_TooLargeForADeadLetter_T04(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	value := bytes.Repeat([]byte("x"), 1<<20-200)
	produce(t, brokers, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k"), Value: sarama.ByteEncoder(value)})
	produceEvents(t, brokers, topic, 1, 2)
	var got tally
	m := start(t, cfg, routed(got.handle))
	letters := readAll(t, brokers, topic+"."+cfg.Group+".dlq", 1)
	require.Empty(t, letters[0].Value)
	require.Equal(t, fmt.Sprint(len(value)), header(letters[0], deadletter.HeaderValueOmitted))
	require.Equal(t, "0", header(letters[0], deadletter.HeaderOffset))
	require.Equal(t, "k", string(letters[0].Key))
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	require.NoError(t, m.end())
	require.EqualValues(t, 2, committed(t, brokers, cfg.Group, topic, 0)[0])
}

// TestKafka_LettersByteForByte_T09 sends random records through the dead-letter topic: key, value,
// headers and time stay exactly as they were, nil and empty apart.
func TestKafka_DeadLettersByteForByte_T09(t *testing.T) {
	t.Parallel()
	n := 500
	if os.Getenv("IDEM_SOAK") != "" {
		n = 2000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	brokers, topic, cfg := onKafka(t, 1)
	var msgs []*sarama.ProducerMessage
	for range n {
		msgs = append(msgs, randomRecord(rnd, topic))
	}
	produce(t, brokers, msgs...)
	sources := readAll(t, brokers, topic, n)
	m := start(t, cfg, routed(func(context.Context, *idem.Message) error { return nil },
		idem.Tombstones(), idem.ID(idem.FromHeader("nowhere"))))
	letters := readAll(t, brokers, topic+"."+cfg.Group+".dlq", n)
	require.NoError(t, m.end())
	for _, l := range letters {
		i, err := strconv.Atoi(header(l, deadletter.HeaderOffset))
		require.NoError(t, err)
		s := sources[i]
		require.EqualValues(t, i, s.Offset)
		require.Equal(t, s.Key == nil, l.Key == nil, "nil key")
		require.Equal(t, s.Value == nil, l.Value == nil, "nil value")
		require.Equal(t, s.Key, l.Key)
		require.Equal(t, s.Value, l.Value)
		require.True(t, s.Timestamp.Equal(l.Timestamp))
		require.Equal(t, s.Headers, l.Headers[:len(s.Headers)])
	}
}

func randomRecord(rnd *rand.Rand, topic string) *sarama.ProducerMessage {
	text := func() []byte {
		b := make([]byte, []int{0, 1, 10, 1000}[rnd.IntN(4)])
		for i := range b {
			b[i] = byte(rnd.UintN(256))
		}
		return b
	}
	m := &sarama.ProducerMessage{Topic: topic, Timestamp: time.Now().Truncate(time.Millisecond).Add(-time.Duration(rnd.Int64N(86_400_000)) * time.Millisecond)}
	if rnd.IntN(3) > 0 {
		m.Key = sarama.ByteEncoder(text())
	}
	if rnd.IntN(3) > 0 {
		m.Value = sarama.ByteEncoder(text())
	}
	for range rnd.IntN(4) {
		h := sarama.RecordHeader{Key: []byte(fmt.Sprint("h", rnd.IntN(2)))} // often twice
		if rnd.IntN(3) > 0 {
			h.Value = text()
		}
		m.Headers = append(m.Headers, h)
	}
	return m
}

// TestKafka_AbortedTransactions_K30_K31: records of an aborted transaction are not seen. The
// committed offset is the one after the last event, although the log goes on with records of Kafka
// itself.
func TestKafka_AbortedTransactions_K30_K31(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	sc := testenv.KafkaConfig()
	sc.Producer.Transaction.ID = "tx-" + topic
	sc.Producer.Idempotent = true
	sc.Net.MaxOpenRequests = 1
	p, err := sarama.NewSyncProducer(brokers, sc)
	require.NoError(t, err)
	defer p.Close()
	want, last := 0, int64(0)
	for i := range 30 {
		require.NoError(t, p.BeginTxn())
		for j := range 3 {
			m := record(topic, i*3+j)
			_, offset, err := p.SendMessage(m)
			require.NoError(t, err)
			if i%3 != 0 {
				last = offset
			}
		}
		if i%3 == 0 || i == 29 {
			require.NoError(t, p.AbortTxn())
			if i == 29 {
				last -= 4 // three of this one and a marker
			}
		} else {
			require.NoError(t, p.CommitTxn())
			want += 3
		}
	}
	var got tally
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		if n, _ := strconv.Atoi(eventID(m)); n/3%3 == 0 || n/3 == 29 {
			t.Errorf("event %d was never committed", n)
		}
		got.add(eventID(m))
		return nil
	}))
	require.Eventually(t, func() bool { return got.events() == want }, soon, poll)
	require.Eventually(t, func() bool { return sourceClaims(m)[0].Pending() == 0 }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, last+1, committed(t, brokers, cfg.Group, topic, 0)[0])
}

// TestKafka_CompactedLog_K31: a log with holes is read to its end.
func TestKafka_CompactedLog_K31(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the log cleaner")
	}
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 1, map[string]string{
		"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "100",
	})
	cfg := Config{Brokers: brokers, Group: "g-" + topic, Topics: []string{topic}, CreateDeadLetterTopics: &TopicSpec{}}
	for i := range 200 {
		m := record(topic, i)
		m.Key = sarama.StringEncoder(fmt.Sprint(i % 10))
		produce(t, brokers, m)
	}
	count := func() int {
		sc := testenv.KafkaConfig()
		c, err := sarama.NewConsumer(brokers, sc)
		require.NoError(t, err)
		defer c.Close()
		pc, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
		require.NoError(t, err)
		defer pc.Close()
		n := 0
		for {
			select {
			case m := <-pc.Messages():
				if n++; m.Offset == pc.HighWaterMarkOffset()-1 {
					return n
				}
			case <-time.After(5 * time.Second):
				return n
			}
		}
	}
	deadline := time.Now().Add(time.Minute)
	left := count()
	for i := 1000; left > 100; left, i = count(), i+1 {
		if time.Now().After(deadline) {
			t.Skipf("the log cleaner did nothing in a minute: %d records", left)
		}
		require.NoError(t, pause(t.Context(), 2*time.Second))
		roll := record(topic, i)
		roll.Key = sarama.StringEncoder("0")
		produce(t, brokers, roll) // and with it the segment
	}
	t.Logf("%d records left", left)
	var got tally
	var last int64
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		got.add(eventID(m))
		last = m.Offset
		return nil
	}))
	require.Eventually(t, func() bool {
		cs := sourceClaims(m)
		return len(cs) == 1 && cs[0].Pending() == 0 && cs[0].Claim().HighWaterMarkOffset() > 0 && got.total() > 0
	}, soon, 500*time.Millisecond)
	require.NoError(t, m.end())
	require.Equal(t, last+1, committed(t, brokers, cfg.Group, topic, 0)[0])
}
