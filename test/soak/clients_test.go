package soak

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kafkagoidem"
	"github.com/idem-go/idem/adapter/kgoidem"
	"github.com/idem-go/idem/adapter/watermillidem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/runner"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	session = 6 * time.Second
	grace   = 5 * time.Second
)

// clients run a worker on each Kafka client until ctx ends.
var clients = map[clientName]func(context.Context, *worker, dedup.Store, *idem.Router) error{
	saramaClient: runConsumer, franzGo: runKgo, kafkaGo: runKafkaGo, watermillGo: runWatermill,
}

func runConsumer(ctx context.Context, w *worker, s dedup.Store, r *idem.Router) error {
	c, err := consumer.New(consumer.Config{
		Brokers: w.Brokers, Group: w.Topic, Topics: []string{w.Topic}, Store: s, InstanceID: w.Name,
		Lease: lease, Grace: grace, CreateDeadLetterTopics: &consumer.TopicSpec{},
		Sarama: func(c *sarama.Config) {
			c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = session, time.Second
		},
	}, r)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func runKgo(ctx context.Context, w *worker, s dedup.Store, r *idem.Router) error {
	c, err := kgoidem.New(kgoidem.Config{
		Brokers: w.Brokers, Group: w.Topic, Topics: []string{w.Topic}, Store: s, InstanceID: w.Name,
		Lease: lease, Grace: grace, CreateDeadLetterTopics: &runner.TopicSpec{},
		Options: []kgo.Opt{kgo.SessionTimeout(session), kgo.HeartbeatInterval(time.Second)},
	}, r)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// kafka-go knows no static membership: the partitions of a killed worker rest for a session.
func runKafkaGo(ctx context.Context, w *worker, s dedup.Store, r *idem.Router) error {
	c, err := kafkagoidem.New(kafkagoidem.Config{
		Brokers: w.Brokers, Group: w.Topic, Topics: []string{w.Topic}, Store: s,
		Lease: lease, Grace: grace, CreateDeadLetterTopics: &runner.TopicSpec{},
		SessionTimeout: session, Heartbeat: time.Second,
	}, r)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

func runWatermill(ctx context.Context, w *worker, s dedup.Store, r *idem.Router) error {
	p, err := idem.NewProcessor(r, idem.Config{Store: s, Scope: w.Topic, Group: w.Topic, Lease: lease})
	if err != nil {
		return err
	}
	sc := kafka.DefaultSaramaSubscriberConfig()
	sc.Version = sarama.V2_8_0_0 // for static membership
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.InstanceId = w.Name
	sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = session, time.Second
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: w.Brokers, ConsumerGroup: w.Topic, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: sc,
	}, watermill.NopLogger{})
	if err != nil {
		return errors.Join(err, p.Close())
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return errors.Join(err, subscriber.Close(), p.Close())
	}
	router.AddConsumerHandler(w.Topic, w.Topic, subscriber, watermillidem.Handler(p, watermillidem.WithPosition(position)))
	return errors.Join(router.Run(ctx), p.Close())
}

// position reads the values that watermill-kafka puts into the context of a message.
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
