package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
)

// This file has records that are larger than brokers and clients expect.

// sendLarge writes records as one batch.
func sendLarge(t *testing.T, brokers []string, codec sarama.CompressionCodec, msgs ...*sarama.ProducerMessage) {
	t.Helper()
	sc := testenv.KafkaConfig()
	sc.Producer.MaxMessageBytes = 1 << 30
	sc.Producer.Compression = codec
	sc.Producer.Flush.Messages, sc.Producer.Flush.MaxMessages = len(msgs), len(msgs)
	sc.Producer.Flush.Bytes = 1 << 30
	p, err := sarama.NewSyncProducer(brokers, sc)
	require.NoError(t, err)
	defer p.Close()
	require.NoError(t, p.SendMessages(msgs))
}

// sized is event number i with so many bytes of JSON.
func sized(topic string, i, bytes int) *sarama.ProducerMessage {
	m := record(topic, i)
	value := make([]byte, bytes)
	for j := range value {
		value[j] = ' '
	}
	copy(value, "{}")
	m.Value = sarama.ByteEncoder(value)
	return m
}

// TestKafka_LargeRecord_K41: a record of more bytes than a client asks for blocks no partition.
func TestKafka_LargeRecord_K41(t *testing.T) {
	t.Parallel()
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 1, map[string]string{"max.message.bytes": "33554432"})
	cfg := Config{Brokers: brokers, Group: "g-" + topic, Topics: []string{topic}, CreateDeadLetterTopics: &TopicSpec{}}
	produceEvents(t, brokers, topic, 0, 10)
	sendLarge(t, brokers, sarama.CompressionNone, sized(topic, 10, 20<<20))
	produceEvents(t, brokers, topic, 11, 20)
	var got tally
	m := start(t, cfg, routed(func(ctx context.Context, e *idem.Message) error {
		if eventID(e) == "10" && len(e.Value) != 20<<20 {
			t.Errorf("the large event has %d bytes", len(e.Value))
		}
		return got.handle(ctx, e)
	}))
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 20, got.total())
	require.EqualValues(t, 20, committed(t, brokers, cfg.Group, topic, 0)[0])
}

// TestKafka_Bomb_G01: a batch that decompresses to more than the limit is not read into memory. The
// group loses no event, and the log names the remedy.
func TestKafka_Bomb_G01(t *testing.T) {
	t.Parallel()
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 1)
	cfg := Config{Brokers: brokers, Group: "g-" + topic, Topics: []string{topic}, CreateDeadLetterTopics: &TopicSpec{}}
	cfg.Sarama = func(sc *sarama.Config) {
		quick(sc)
		sc.Consumer.Retry.Backoff = 200 * time.Millisecond // between ten failures, then sarama gives up
	}
	var bomb []*sarama.ProducerMessage
	for i := range int(sarama.MaxDecompressedBatchSize>>20) + 1 {
		bomb = append(bomb, sized(topic, i, 1<<20))
	}
	sendLarge(t, brokers, sarama.CompressionZSTD, bomb...)
	produceEvents(t, brokers, topic, 1000, 1100)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool {
		return m.count("raise sarama.MaxDecompressedBatchSize") > 0 && m.count("cannot consume, will go on trying") > 0
	}, soon, poll)
	require.NoError(t, m.end())
	require.Zero(t, got.total())
	require.Zero(t, m.count("committing offsets fails"))
	require.EqualValues(t, -1, committed(t, brokers, cfg.Group, topic, 0)[0])

	commit(t, brokers, cfg.Group, topic, bomb[len(bomb)-1].Offset+1)
	m = start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 100 }, soon, poll)
	require.NoError(t, m.end())
}

// commit resets the offset of a group in partition 0. A member that could not leave is in the group
// until its session times out, and the broker takes no offset meanwhile.
func commit(t *testing.T, brokers []string, group, topic string, offset int64) {
	t.Helper()
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	require.Eventually(t, func() bool {
		offsets, err := sarama.NewOffsetManagerFromClient(group, client)
		if err != nil {
			return false
		}
		defer offsets.Close()
		p, err := offsets.ManagePartition(topic, 0)
		if err != nil {
			return false
		}
		p.MarkOffset(offset, "")
		offsets.Commit()
		return p.Close() == nil
	}, soon, poll)
}
