package outbox

import (
	"context"
	"fmt"
	"time"
)

const (
	purgeEvery = time.Minute
	purgeBatch = 1000
	purgePause = 50 * time.Millisecond // between two batches, as long as there are more

	backlogEvery = 10 * time.Second
	lookEvery    = time.Minute // if nobody watches the backlog
	backlogLimit = 10_000
	lateAfter    = time.Minute // an event that waits for longer is worth a line in the log
)

// chores are what is done between two rounds, at most one call of each: publishing is not held up for long.
func (r *Relay) chores(ctx context.Context) {
	now := time.Now()
	if !now.Before(r.purgeAt) { // also without Keep: rows may be left of a time when there was one
		r.purgeAt = now.Add(r.purge(ctx))
	}
	if !now.Before(r.backlogAt) {
		r.backlogAt = now.Add(r.look(ctx))
	}
}

// choresIn is when the next one is due.
func (r *Relay) choresIn() time.Duration {
	return min(time.Until(r.backlogAt), time.Until(r.purgeAt))
}

// purge deletes a batch of what was kept for long enough, and returns when to go on.
func (r *Relay) purge(ctx context.Context) time.Duration {
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	n, err := r.cfg.Store.Purge(call, r.cfg.Keep, purgeBatch)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		r.health.purge.set(ctx, "purge", err)
	default:
		r.health.purge.clear(ctx, "purge")
		if n >= purgeBatch {
			return purgePause
		}
	}
	return jitter(purgeEvery)
}

// look finds out what waits, for observers and for a line in the log, and returns when to look again.
func (r *Relay) look(ctx context.Context) time.Duration {
	again := lookEvery
	for _, o := range r.cfg.Observers {
		if _, ok := o.(BacklogObserver); ok {
			again = backlogEvery
		}
	}
	call, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	backlog, err := r.cfg.Store.Backlog(call, backlogLimit)
	switch {
	case ctx.Err() != nil:
		return again
	case err != nil:
		r.health.look.set(ctx, "backlog", err)
		return again
	}
	r.health.look.clear(ctx, "backlog")
	if backlog.Oldest > lateAfter {
		r.health.late.set(ctx, "backlog", fmt.Errorf("the oldest of %d events waits for %s", backlog.Waiting,
			backlog.Oldest.Round(time.Second)))
	} else {
		r.health.late.clear(ctx, "backlog")
	}
	backlog.Outbox = r.cfg.Name
	for _, o := range r.cfg.Observers {
		if o, ok := o.(BacklogObserver); ok {
			o.ObserveBacklog(ctx, backlog)
		}
	}
	return again
}
