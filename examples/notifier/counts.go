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

// counter counts what a worker meets. A duplicate is no error: it is what Kafka promises, and what is skipped here.
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

// ObserveClaim counts a delivery by the store's answer to it. Busy is no final answer: the event is asked for again.
func (c *counter) ObserveClaim(_ context.Context, e idem.ClaimEvent) {
	if e.Err == nil && e.Verdict != dedup.Busy {
		c.deliveries.Add(1)
	}
}

// ObserveRetry takes back one, since the same delivery is claimed again.
func (c *counter) ObserveRetry(context.Context, idem.RetryEvent) { c.deliveries.Add(-1) }

// ObserveHandled counts runs of the handler.
func (c *counter) ObserveHandled(_ context.Context, e idem.HandledEvent) {
	if e.Err == nil {
		c.sent.Add(1)
	} else {
		c.failed.Add(1)
	}
}

// ObserveDuplicate counts deliveries that were not run.
func (c *counter) ObserveDuplicate(context.Context, idem.DuplicateEvent) { c.duplicates.Add(1) }

// ObserveDeadLetter counts what was given up. What has no identity never met the store: it is counted as delivered here.
func (c *counter) ObserveDeadLetter(_ context.Context, e idem.DeadLetterEvent) {
	c.deadLettered.Add(1)
	if e.Key.ID == "" {
		c.deliveries.Add(1)
	}
}

// LogValue shows all counts.
func (c *counter) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Int64("deliveries", c.deliveries.Load()),
		slog.Int64("sent", c.sent.Load()),
		slog.Int64("failed_runs", c.failed.Load()),
		slog.Int64("duplicates", c.duplicates.Load()),
		slog.Int64("dead_lettered", c.deadLettered.Load()))
}

// report logs the counts at an interval, if there is one, until ctx ends or stop is called.
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
