package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// consumeWatermill runs handle on every message, in Watermill's router. The subscriber delivers one
// message of each partition at a time.
func consumeWatermill(
	ctx context.Context,
	x *run,
	handle message.NoPublishHandlerFunc,
	around ...message.HandlerMiddleware,
) error {
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
	router.AddMiddleware(around...)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := newFirstError()
	router.AddConsumerHandler("pay", x.topic.name, subscriber, func(m *message.Message) error {
		err := handle(m)
		if err != nil && ctx.Err() == nil { // Watermill would deliver the message again
			failed.add(err)
			stop()
		}
		return err
	})
	return errors.Join(router.Run(ctx), failed.get()) // Run closes the subscriber
}

// watermillDedup is Watermill's router with its Deduplicator, a map in the process, which is not
// durable.
func watermillDedup(ctx context.Context, x *run) error {
	seen, err := middleware.NewMapExpiringKeyRepository(time.Minute)
	if err != nil {
		return err
	}
	dedup := &middleware.Deduplicator{
		KeyFactory: func(m *message.Message) (string, error) { return m.Metadata.Get(headerID), nil },
		Repository: seen,
	}
	return consumeWatermill(ctx, x, func(m *message.Message) error {
		x.meter.begin()
		var p payment
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			return err
		}
		x.meter.effect(p.Seq)
		return nil
	}, dedup.Middleware)
}

// watermillNaivePostgres acknowledges a message after its transaction.
func watermillNaivePostgres(ctx context.Context, x *run) error {
	return consumeWatermill(
		ctx,
		x,
		func(m *message.Message) error { return naiveTx(m.Context(), x, m.Payload) },
	)
}
