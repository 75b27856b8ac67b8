package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// watermillDedup is Watermill's router with its Deduplicator, a map in the process, which is not
// durable.
func watermillDedup(ctx context.Context, x *run) error {
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: x.brokers, ConsumerGroup: x.group, Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: saramaConfig(),
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(
		message.RouterConfig{CloseTimeout: 10 * time.Second},
		watermill.NopLogger{},
	)
	if err != nil {
		return err
	}
	seen, err := middleware.NewMapExpiringKeyRepository(time.Minute)
	if err != nil {
		return err
	}
	dedup := &middleware.Deduplicator{
		KeyFactory: func(m *message.Message) (string, error) { return m.Metadata.Get(headerID), nil },
		Repository: seen,
	}
	router.AddMiddleware(dedup.Middleware)
	router.AddConsumerHandler("pay", x.topic.name, subscriber, func(m *message.Message) error {
		x.meter.begin()
		var p payment
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			return err
		}
		x.meter.effect(p.Seq)
		return nil
	})
	return router.Run(ctx) // closes the subscriber
}
