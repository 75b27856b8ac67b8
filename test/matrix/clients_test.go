package matrix

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	confluent "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kafkagoidem"
	"github.com/idem-go/idem/adapter/kgoidem"
	"github.com/idem-go/idem/adapter/watermillidem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// setup has the settings of a client for one combination.
type setup struct {
	brokers   []string
	topic     string
	store     dedup.Store
	router    *idem.Router
	observers []observe.Observer
	log       *slog.Logger
}

// client consumes a topic until ctx ends, and returns nil then.
type client struct {
	name string
	run  func(ctx context.Context, s setup) error
}

var clients = []client{
	{"`consumer` (sarama)", runConsumer},
	{"`kgoidem` (franz-go)", runKgo},
	{"`kafkagoidem` (kafka-go)", runKafkaGo},
	{"`watermillidem` (Watermill)", runWatermill},
	{"`HandleBatch` (a loop on franz-go)", runLoop},
	{"`HandleBatch` (a loop on confluent-kafka-go)", runConfluent},
}

func runConsumer(ctx context.Context, s setup) error {
	c, err := consumer.New(consumer.Config{
		Brokers: s.brokers, Group: s.topic, Topics: []string{s.topic}, Store: s.store, Observers: s.observers,
		Logger: s.log, CreateDeadLetterTopics: &consumer.TopicSpec{}, CommitInterval: 100 * time.Millisecond,
		Sarama: func(sc *sarama.Config) { sc.Consumer.MaxWaitTime = 100 * time.Millisecond },
	}, s.router)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func runKgo(ctx context.Context, s setup) error {
	r, err := kgoidem.New(kgoidem.Config{
		Brokers: s.brokers, Group: s.topic, Topics: []string{s.topic}, Store: s.store, Observers: s.observers,
		Logger: s.log, CreateDeadLetterTopics: &runner.TopicSpec{}, CommitInterval: 100 * time.Millisecond,
	}, s.router)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func runKafkaGo(ctx context.Context, s setup) error {
	r, err := kafkagoidem.New(kafkagoidem.Config{
		Brokers: s.brokers, Group: s.topic, Topics: []string{s.topic}, Store: s.store, Observers: s.observers,
		Logger: s.log, CreateDeadLetterTopics: &runner.TopicSpec{}, CommitInterval: 100 * time.Millisecond,
	}, s.router)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

func runWatermill(ctx context.Context, s setup) error {
	p, err := idem.NewProcessor(s.router, idem.Config{
		Store: s.store, Scope: s.topic, Group: s.topic, Observers: s.observers, Logger: s.log,
	})
	if err != nil {
		return err
	}
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: s.brokers, ConsumerGroup: s.topic, Unmarshaler: kafka.DefaultMarshaler{},
		OverwriteSaramaConfig: fromOldest(),
	}, watermill.NopLogger{})
	if err != nil {
		return errors.Join(err, p.Close())
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return errors.Join(err, subscriber.Close(), p.Close())
	}
	router.AddConsumerHandler(s.topic, s.topic, subscriber,
		watermillidem.Handler(p, watermillidem.WithPosition(position)))
	return errors.Join(router.Run(ctx), p.Close())
}

func fromOldest() *sarama.Config {
	sc := kafka.DefaultSaramaSubscriberConfig()
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.MaxWaitTime = 100 * time.Millisecond
	return sc
}

// position reads the place, time and key of a message that watermill-kafka puts into its context.
func position(ctx context.Context) (at watermillidem.Position, ok bool) {
	var known bool
	if at.Partition, ok = kafka.MessagePartitionFromCtx(ctx); !ok {
		return at, false
	}
	at.Offset, ok = kafka.MessagePartitionOffsetFromCtx(ctx)
	at.Time, known = kafka.MessageTimestampFromCtx(ctx)
	at.Key, _ = kafka.MessageKeyFromCtx(ctx)
	return at, ok && known
}

// runLoop is a consumer loop of a program's own, see docs/embedding.md.
func runLoop(ctx context.Context, s setup) error {
	p, err := idem.NewProcessor(s.router, idem.Config{
		Store: s.store, Scope: s.topic, Group: s.topic, Observers: s.observers, Logger: s.log,
	})
	if err != nil {
		return err
	}
	k, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumerGroup(s.topic), kgo.ConsumeTopics(s.topic),
		kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) {
			for topic, ids := range assigned {
				for _, id := range ids {
					p.Assigned(topic, id)
				}
			}
		}))
	if err != nil {
		return errors.Join(err, p.Close())
	}
	defer k.Close()
	for ctx.Err() == nil {
		var failed error
		fetches := k.PollRecords(ctx, 1000)
		fetches.EachPartition(func(part kgo.FetchTopicPartition) {
			failed = errors.Join(failed, handle(ctx, k, p, part.Records))
		})
		k.AllowRebalance()
		if failed != nil && ctx.Err() == nil {
			return errors.Join(failed, p.Close())
		}
	}
	return p.Close()
}

// handle settles and commits the records of one partition.
func handle(ctx context.Context, k *kgo.Client, p *idem.Processor, records []*kgo.Record) error {
	msgs := make([]*idem.Message, len(records))
	for i, r := range records {
		msgs[i] = fromKgo(r)
	}
	return settle(ctx, p, msgs, func(settled int) error {
		return k.CommitRecords(ctx, records[settled-1])
	})
}

// settle settles the messages of one partition, and calls commit with the number that is settled.
func settle(
	ctx context.Context, p *idem.Processor, msgs []*idem.Message, commit func(settled int) error,
) error {
	for all := len(msgs); len(msgs) > 0; {
		n, err := p.HandleBatch(ctx, msgs)
		msgs = msgs[n:]
		if n > 0 {
			if err := commit(all - len(msgs)); err != nil {
				return err
			}
		}
		var wait *idem.WaitError
		switch {
		case errors.As(err, &wait):
			select {
			case <-time.After(wait.After):
			case <-ctx.Done():
				return errStopped
			}
		case err != nil:
			return err
		}
	}
	return nil
}

func fromKgo(r *kgo.Record) *idem.Message {
	m := &idem.Message{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Time: r.Timestamp,
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, idem.Header{Key: h.Key, Value: h.Value})
	}
	return m
}

// runConfluent is a loop on librdkafka. The loop of examples/confluent has lanes, and tests of its
// own.
func runConfluent(ctx context.Context, s setup) error {
	p, err := idem.NewProcessor(s.router, idem.Config{
		Store: s.store, Scope: s.topic, Group: s.topic, Observers: s.observers, Logger: s.log,
	})
	if err != nil {
		return err
	}
	c, err := confluent.NewConsumer(&confluent.ConfigMap{
		"bootstrap.servers": strings.Join(s.brokers, ","), "group.id": s.topic, "enable.auto.commit": false,
		"auto.offset.reset": "earliest", "isolation.level": "read_committed",
		"fetch.wait.max.ms": 100, "log_level": 0,
	})
	if err != nil {
		return errors.Join(err, p.Close())
	}
	err = c.Subscribe(s.topic, func(_ *confluent.Consumer, e confluent.Event) error {
		if assigned, ok := e.(confluent.AssignedPartitions); ok {
			for _, at := range assigned.Partitions {
				p.Assigned(*at.Topic, at.Partition)
			}
		}
		return nil
	})
	for err == nil && ctx.Err() == nil {
		err = poll(ctx, c, p)
	}
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, c.Close(), p.Close())
}

// poll settles and commits the messages that wait, partition by partition.
func poll(ctx context.Context, c *confluent.Consumer, p *idem.Processor) error {
	waiting := make(map[int32][]*idem.Message)
	for wait := 100; ; wait = 0 {
		switch e := c.Poll(wait).(type) {
		case *confluent.Message:
			at := e.TopicPartition.Partition
			waiting[at] = append(waiting[at], fromConfluent(e))
			continue
		case confluent.Error:
			if e.IsFatal() {
				return e
			}
			continue
		case nil:
		default: // answers to commits, and the like
			continue
		}
		break
	}
	for partition, msgs := range waiting {
		err := settle(ctx, p, msgs, func(settled int) error {
			_, err := c.CommitOffsets([]confluent.TopicPartition{{
				Topic: &msgs[0].Topic, Partition: partition, Offset: confluent.Offset(msgs[settled-1].Offset + 1),
			}})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func fromConfluent(r *confluent.Message) *idem.Message {
	m := &idem.Message{
		Topic: *r.TopicPartition.Topic, Partition: r.TopicPartition.Partition,
		Offset: int64(r.TopicPartition.Offset), Key: r.Key, Value: r.Value, Time: r.Timestamp,
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, idem.Header{Key: h.Key, Value: h.Value})
	}
	return m
}
