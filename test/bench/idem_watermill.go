package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/watermillidem"
)

// watermillRows run naive code and Idem in Watermill's router, on the same subscriber.
func watermillRows(n sizes) []row {
	s := spec{deliveries: n.slow, partitions: 6, seed: 1}
	return []row{
		{
			name:    "watermill-naive-postgres",
			about:   "one transaction an event, Watermill",
			spec:    s,
			consume: watermillNaivePostgres,
			check:   inOrders,
			pay:     payOwn,
		},
		{
			name:    "watermill-ontx",
			about:   "OnTx in a Collector, Watermill: a batch has at most an event a partition",
			spec:    s,
			consume: watermillOnTx,
			check:   inOrders,
			pay:     payOwn,
		},
	}
}

// watermillOnTx collects the messages of all partitions. A batch has at most one of each.
func watermillOnTx(ctx context.Context, x *run) (err error) {
	letters := noDeadLetters{newFirstError()}
	p, err := idem.NewProcessor(onTxRouter(x), idem.Config{
		Store: x.postgres(), Scope: x.scope, Group: x.group, Producer: letters,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	c, err := watermillidem.NewCollector(
		p, watermillidem.CollectorConfig{}, watermillidem.WithPosition(kafkaPosition),
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return letters.refused(ctx, func(ctx context.Context) error {
		return consumeWatermill(ctx, x, c.Handle)
	})
}

// kafkaPosition returns the position that watermill-kafka put into the context.
func kafkaPosition(ctx context.Context) (at watermillidem.Position, ok bool) {
	if at.Partition, ok = kafka.MessagePartitionFromCtx(ctx); !ok {
		return at, false
	}
	if at.Offset, ok = kafka.MessagePartitionOffsetFromCtx(ctx); !ok {
		return at, false
	}
	if at.Time, ok = kafka.MessageTimestampFromCtx(ctx); !ok {
		return at, false
	}
	at.Key, ok = kafka.MessageKeyFromCtx(ctx)
	return at, ok
}
