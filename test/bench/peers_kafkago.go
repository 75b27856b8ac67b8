package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"
)

// kafkaGoQueue is how many messages of a partition wait for their goroutine. It is as long as the
// queue of a Reader.
const kafkaGoQueue = 100

// kafkaGoNaivePostgres reads with a Reader, which mixes the partitions. Each partition has a
// goroutine of its own. Commits go out each second, as sarama and franz-go send them.
func kafkaGoNaivePostgres(ctx context.Context, x *run) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: x.brokers, GroupID: x.group, Topic: x.topic.name, StartOffset: kafka.FirstOffset,
		CommitInterval: time.Second,
	})
	group, working := errgroup.WithContext(ctx)
	queues := make(map[int]chan kafka.Message)
	group.Go(func() error {
		for {
			m, err := reader.FetchMessage(working)
			if err != nil {
				return err
			}
			queue := queues[m.Partition]
			if queue == nil {
				queue = make(chan kafka.Message, kafkaGoQueue)
				queues[m.Partition] = queue
				group.Go(func() error { return kafkaGoPartition(working, x, reader, queue) })
			}
			select {
			case queue <- m:
			case <-working.Done():
				return context.Cause(working)
			}
		}
	})
	err := group.Wait()
	if closed := reader.Close(); err == nil || ctx.Err() != nil { // the row ended it
		err = closed
	}
	return err
}

// kafkaGoPartition handles the messages of a partition in order, and commits each after its
// transaction.
func kafkaGoPartition(
	ctx context.Context, x *run, reader *kafka.Reader, queue <-chan kafka.Message,
) error {
	for {
		select {
		case m := <-queue:
			if err := naiveTx(ctx, x, m.Value); err != nil {
				return err
			}
			if err := reader.CommitMessages(ctx, m); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
