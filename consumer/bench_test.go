package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
)

// BenchmarkConsumer compares the runner with bare sarama. The messages have no handler, so that
// neither store nor handler is measured. Run it with -benchtime=200000x or so.
func BenchmarkConsumer(b *testing.B) {
	brokers := testenv.Kafka(b)
	b.Run("bare", func(b *testing.B) {
		topic := filled(b, brokers)
		cfg := testenv.KafkaConfig()
		cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
		group, err := sarama.NewConsumerGroup(brokers, "bare-"+topic, cfg)
		require.NoError(b, err)
		defer group.Close()
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		b.ResetTimer()
		_ = group.Consume(ctx, []string{topic}, &bare{left: int64(b.N), stop: stop})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	})
	b.Run("idem", func(b *testing.B) {
		topic := filled(b, brokers)
		ctx, stop := context.WithCancel(b.Context())
		defer stop()
		r := idem.NewRouter(idem.Type(idem.FromHeader("event-type")))
		idem.On(r, "other", func(context.Context, idem.Event[struct{}]) error { return nil })
		c, err := New(Config{
			Brokers: brokers, Group: "idem-" + topic, Topics: []string{topic}, Store: forever(), Logger: quiet,
			CreateDeadLetterTopics: &TopicSpec{}, Observers: []observe.Observer{&skips{left: int64(b.N), stop: stop}},
		}, r)
		require.NoError(b, err)
		b.ResetTimer()
		require.NoError(b, c.Run(ctx))
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	})
}

// filled returns a topic with b.N events of 250 bytes.
func filled(b *testing.B, brokers []string) string {
	topic := testenv.CreateTopic(b, brokers, 6)
	cfg := testenv.KafkaConfig()
	cfg.Producer.Flush.Frequency = 5 * time.Millisecond
	p, err := sarama.NewAsyncProducer(brokers, cfg)
	require.NoError(b, err)
	var results sync.WaitGroup
	results.Go(func() {
		for range p.Successes() {
		}
	})
	value := make(sarama.ByteEncoder, 230)
	for range b.N {
		p.Input() <- &sarama.ProducerMessage{Topic: topic, Value: value,
			Headers: []sarama.RecordHeader{{Key: []byte("event-type"), Value: []byte("thing")}}}
	}
	p.AsyncClose()
	results.Wait()
	return topic
}

type bare struct {
	left int64
	stop context.CancelFunc
}

func (*bare) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*bare) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *bare) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		sess.MarkMessage(m, "")
		if atomic.AddInt64(&h.left, -1) == 0 {
			h.stop()
		}
	}
	return nil
}

type skips struct {
	left int64
	stop context.CancelFunc
}

func (s *skips) ObserveSkipped(context.Context, observe.SkippedEvent) {
	if atomic.AddInt64(&s.left, -1) == 0 {
		s.stop()
	}
}
