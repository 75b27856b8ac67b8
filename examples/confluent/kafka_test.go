package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// TestKafka_Members: members join and leave while payments flow, each of them twice. Each payment
// is handled once, all offsets are committed, and the record that cannot be decoded is a
// dead letter.
func TestKafka_Members(t *testing.T) {
	brokers := testenv.Kafka(t)
	topic := testenv.CreateTopic(t, brokers, 4)
	group := topic + "-group"
	dlq := topic + "." + group + ".dlq"
	admin := testenv.KafkaAdmin(t, brokers)
	require.NoError(t, admin.CreateTopic(dlq, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	out, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": strings.Join(brokers, ","), "enable.idempotence": true})
	require.NoError(t, err)
	defer out.Close()

	var mu sync.Mutex
	runs := make(map[string]int)
	store := memstore.New(memstore.Volatile())
	member := func() (stop func()) {
		router := idem.NewRouter()
		idem.On(router, "payment.completed", func(_ context.Context, e idem.Event[Payment]) error {
			mu.Lock()
			defer mu.Unlock()
			runs[e.ID]++
			return nil
		})
		log := slog.New(slog.DiscardHandler)
		p, err := idem.NewProcessor(router, idem.Config{Store: store, Scope: group, Producer: producer{out}, Logger: log})
		require.NoError(t, err)
		in, err := newConsumer(strings.Join(brokers, ","), group)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		upkeep, err := runner.NewUpkeep(p, runner.UpkeepConfig{
			Topics: []string{topic}, Logger: log,
			NoOffsets: func(context.Context) (bool, error) { return noOffsets(in, topic) },
		})
		require.NoError(t, err)
		l := &loop{client: in, processor: p, upkeep: upkeep, lanes: lane.Config{Lanes: 4}, log: log}
		go func() { ended <- l.run(ctx, []string{topic}) }()
		return sync.OnceFunc(func() {
			cancel()
			require.NoError(t, <-ended)
			require.NoError(t, p.Close())
		})
	}
	handled := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(runs)
	}
	send := func(from, to int) {
		var msgs []*idem.Message
		for i := from; i < to; i++ {
			for copies := range 2 {
				msgs = append(msgs, &idem.Message{
					Topic: topic, Key: fmt.Append(nil, i, copies),
					Value: fmt.Appendf(nil, `{"event_id":"p-%d","type":"payment.completed","order_id":%d}`, i, i),
				})
			}
		}
		require.NoError(t, producer{out}.Produce(t.Context(), msgs...))
	}
	const wait, poll = 30 * time.Second, 20 * time.Millisecond
	first := member()
	defer first()
	send(0, 300)
	require.NoError(t, producer{out}.Produce(t.Context(), &idem.Message{Topic: topic, Value: []byte("no JSON")}))
	require.Eventually(t, func() bool { return handled() > 0 }, wait, poll)
	second := member()
	defer second()
	send(300, 600)
	require.Eventually(t, func() bool { return handled() == 600 }, wait, poll)
	first()
	send(600, 900)
	require.Eventually(t, func() bool { return handled() == 900 }, wait, poll)
	committed := func() (sum int64) {
		reply, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3}})
		require.NoError(t, err)
		for _, b := range reply.Blocks[topic] {
			sum += max(b.Offset, 0)
		}
		return sum
	}
	const sent = 2*900 + 1 // the last copies come after the last payment
	require.Eventually(t, func() bool { return committed() >= sent }, wait, poll)
	second()
	for id, n := range runs {
		require.Equal(t, 1, n, id)
	}
	in, err := newConsumer(strings.Join(brokers, ","), group)
	require.NoError(t, err)
	defer in.Close()
	none, err := noOffsets(in, topic)
	require.NoError(t, err)
	require.False(t, none)
	stranger, err := newConsumer(strings.Join(brokers, ","), group+"-2")
	require.NoError(t, err)
	defer stranger.Close()
	none, err = noOffsets(stranger, topic)
	require.NoError(t, err)
	require.True(t, none)
	require.EqualValues(t, sent, committed())
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	letters, err := client.GetOffset(dlq, 0, sarama.OffsetNewest)
	require.NoError(t, err)
	require.EqualValues(t, 1, letters)
}
