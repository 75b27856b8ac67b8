package outbox

import (
	"context"
	"fmt"
	"time"
)

const (
	purgeEvery = time.Minute
	purgeBatch = 1000
	purgePause = 50 * time.Millisecond // between two batches of one purge

	backlogEvery = 10 * time.Second
	lookEvery    = time.Minute // without an observer of the backlog
	backlogLimit = 10_000
	lateAfter    = time.Minute // an event that waits for longer is logged
)

// chores are the purge of sent rows and the count of the backlog. Only the goroutine of Run uses
// chores.
type chores struct {
	store     Store
	keep      time.Duration
	health    *health
	observers *observers
	purgeAt   time.Time
	backlogAt time.Time
}

// run does the chores that are due, with at most one call of the store for each: publishing is not
// held up for long.
func (c *chores) run(ctx context.Context) {
	now := time.Now()
	if !now.Before(c.purgeAt) { // also without keep: an earlier setting may have left rows
		c.purgeAt = now.Add(c.purge(ctx))
	}
	if !now.Before(c.backlogAt) {
		c.backlogAt = now.Add(c.countBacklog(ctx))
	}
}

// dueIn returns the time until the next chore.
func (c *chores) dueIn() time.Duration {
	return min(time.Until(c.backlogAt), time.Until(c.purgeAt))
}

// purge deletes a batch of rows that were kept for long enough, and returns the time until the next
// purge.
func (c *chores) purge(ctx context.Context) time.Duration {
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	n, err := c.store.Purge(call, c.keep, purgeBatch)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.health.purge.set(ctx, "purge", err)
	default:
		c.health.purge.clear(ctx, "purge")
		if n >= purgeBatch {
			return purgePause
		}
	}
	return jitter(purgeEvery)
}

// countBacklog reads the backlog for the observers and the log, and returns the time until the next
// count.
func (c *chores) countBacklog(ctx context.Context) time.Duration {
	again := lookEvery
	if len(c.observers.backlogs) > 0 {
		again = backlogEvery
	}
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	backlog, err := c.store.Backlog(call, backlogLimit)
	switch {
	case ctx.Err() != nil:
		return again
	case err != nil:
		c.health.backlog.set(ctx, "backlog", err)
		return again
	}
	c.health.backlog.clear(ctx, "backlog")
	if backlog.Oldest > lateAfter {
		c.health.late.set(ctx, "backlog", fmt.Errorf("the oldest of %d events waits for %s",
			backlog.Waiting, backlog.Oldest.Round(time.Second)))
	} else {
		c.health.late.clear(ctx, "backlog")
	}
	c.observers.observeBacklog(ctx, backlog)
	return again
}
