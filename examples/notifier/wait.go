package main

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/examples/internal/kafkagroup"
)

// This file waits for conditions of the demonstration. The broker answers, not the workers.

// condition reports whether a condition holds.
type condition func(context.Context) (bool, error)

// until waits for a condition, shows the progress, and fails if a worker fails.
func (d *demo) until(ctx context.Context, done condition) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := done(ctx)
		if ctx.Err() != nil { // the error of a request in flight would hide the reason
			return context.Cause(ctx)
		}
		if ok || err != nil {
			return err
		}
		for _, w := range d.workers {
			if err := w.failure(); err != nil {
				return err
			}
		}
		d.screen.progress(func() string {
			return fmt.Sprintf(
				"written %4d  delivered %4d  sent %4d  duplicates skipped %3d  dead-lettered %d",
				d.feed.written.Load(), d.counts.deliveries.Load(), d.provider.count(),
				d.counts.duplicates.Load(), d.counts.deadLettered.Load())
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fed waits until a share of the plan is written.
func (d *demo) fed(share float64) condition {
	return func(context.Context) (bool, error) { return d.feed.share() >= share, nil }
}

// lanes waits until a worker has at least n partitions.
func (d *demo) lanes(worker string, n int) condition {
	return func(ctx context.Context) (bool, error) {
		have, err := d.lanesOf(ctx, worker)
		return have >= n, err
	}
}

// lanesOf returns the number of partitions of the topic that a worker has, according to the broker.
func (d *demo) lanesOf(ctx context.Context, worker string) (int, error) {
	groups, err := d.admin.DescribeGroups(ctx, d.group)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, m := range groups[d.group].Members {
		if assigned, ok := m.Assigned.AsConsumer(); ok && m.InstanceID != nil &&
			*m.InstanceID == worker {
			for _, t := range assigned.Topics {
				if t.Topic == d.topic { // not replays
					n += len(t.Partitions)
				}
			}
		}
	}
	return n, nil
}

// committed reports whether the group has committed the last record of every partition.
func (d *demo) committed(ctx context.Context) (bool, error) {
	return kafkagroup.Committed(ctx, d.admin, d.group, d.topic)
}
