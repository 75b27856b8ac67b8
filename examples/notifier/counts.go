package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/observe"
)

// counter counts the deliveries of a worker by outcome. Duplicates are no errors: Kafka delivers at
// least once.
type counter struct {
	deliveries, sent, failed, duplicates, deadLettered atomic.Int64
}

var (
	_ observe.ClaimObserver      = (*counter)(nil)
	_ observe.HandledObserver    = (*counter)(nil)
	_ observe.RetryObserver      = (*counter)(nil)
	_ observe.DuplicateObserver  = (*counter)(nil)
	_ observe.DeadLetterObserver = (*counter)(nil)
)

// ObserveClaim counts a delivery by the answer of the store. Busy is not a final answer, because
// the event is claimed again.
func (c *counter) ObserveClaim(_ context.Context, e observe.ClaimEvent) {
	if e.Err == nil && e.Verdict != dedup.Busy {
		c.deliveries.Add(1)
	}
}

// ObserveRetry subtracts one, because the same delivery is claimed again.
func (c *counter) ObserveRetry(context.Context, observe.RetryEvent) { c.deliveries.Add(-1) }

// ObserveHandled counts runs of the handler.
func (c *counter) ObserveHandled(_ context.Context, e observe.HandledEvent) {
	if e.Err == nil {
		c.sent.Add(1)
	} else {
		c.failed.Add(1)
	}
}

// ObserveDuplicate counts skipped deliveries.
func (c *counter) ObserveDuplicate(context.Context, observe.DuplicateEvent) { c.duplicates.Add(1) }

// ObserveDeadLetter counts dead letters. The store never sees a record without identity, so that
// such a delivery is counted here.
func (c *counter) ObserveDeadLetter(_ context.Context, e observe.DeadLetterEvent) {
	c.deadLettered.Add(1)
	if e.Key.ID == "" {
		c.deliveries.Add(1)
	}
}

// LogValue returns all counts as log attributes.
func (c *counter) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("deliveries", c.deliveries.Load()),
		slog.Int64("sent", c.sent.Load()),
		slog.Int64("failed_runs", c.failed.Load()),
		slog.Int64("duplicates", c.duplicates.Load()),
		slog.Int64("dead_lettered", c.deadLettered.Load()))
}

// report logs the counts at an interval until ctx ends or stop is called. Zero: no log.
func (c *counter) report(ctx context.Context, log *slog.Logger, every time.Duration) (stop func()) {
	if every == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	reporter.Go(func() { cli.Report(ctx, log, every, "counts", c) })
	return func() {
		cancel()
		reporter.Wait()
	}
}
