package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/examples/internal/cli"
)

// counter counts the deliveries of a worker by outcome. Duplicates are no errors: Kafka delivers at
// least once.
type counter struct {
	deliveries, sent, failed, duplicates, deadLettered atomic.Int64
}

var (
	_ idem.ClaimObserver      = (*counter)(nil)
	_ idem.HandledObserver    = (*counter)(nil)
	_ idem.RetryObserver      = (*counter)(nil)
	_ idem.DuplicateObserver  = (*counter)(nil)
	_ idem.DeadLetterObserver = (*counter)(nil)
)

// ObserveClaim counts a delivery by the answer of the store. Busy is not a final answer, because
// the event is claimed again.
func (c *counter) ObserveClaim(_ context.Context, e idem.ClaimEvent) {
	if e.Err == nil && e.Verdict != dedup.Busy {
		c.deliveries.Add(1)
	}
}

// ObserveRetry subtracts one, because the same delivery is claimed again.
func (c *counter) ObserveRetry(context.Context, idem.RetryEvent) { c.deliveries.Add(-1) }

// ObserveHandled counts runs of the handler.
func (c *counter) ObserveHandled(_ context.Context, e idem.HandledEvent) {
	if e.Err == nil {
		c.sent.Add(1)
	} else {
		c.failed.Add(1)
	}
}

// ObserveDuplicate counts skipped deliveries.
func (c *counter) ObserveDuplicate(context.Context, idem.DuplicateEvent) { c.duplicates.Add(1) }

// ObserveDeadLetter counts dead letters. The store never sees a record without identity, so that
// such a delivery is counted here.
func (c *counter) ObserveDeadLetter(_ context.Context, e idem.DeadLetterEvent) {
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

// report logs the counts at an interval until ctx ends or stop is called. Zero logs nothing.
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
