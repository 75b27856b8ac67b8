package main

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The consumers that people write by hand on franz-go.

func franzNaivePostgres(ctx context.Context, x *run) error {
	return consumeFranz(
		ctx,
		x,
		func(ctx context.Context, value []byte) error { return naiveTx(ctx, x, value) },
	)
}

func franzNaiveRedis(ctx context.Context, x *run) error {
	return consumeFranz(
		ctx,
		x,
		func(ctx context.Context, value []byte) error { return naiveRedisEvent(ctx, x, value) },
	)
}

// consumeFranz runs handle on every value of the topic, with a goroutine for each partition of a
// poll. It commits the marked records on a timer.
func consumeFranz(
	ctx context.Context,
	x *run,
	handle func(ctx context.Context, value []byte) error,
) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(x.brokers...),
		kgo.ConsumerGroup(x.group),
		kgo.ConsumeTopics(x.topic.name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitMarks(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return err
		}
		failed := newFirstError()
		var partitions sync.WaitGroup
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			partitions.Go(func() {
				for _, r := range p.Records {
					if err := handle(ctx, r.Value); err != nil {
						failed.add(err)
						return
					}
					client.MarkCommitRecords(r)
				}
			})
		})
		partitions.Wait()
		if err := failed.get(); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
