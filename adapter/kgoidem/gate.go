package kgoidem

import (
	"context"
	"sync"
)

// gate lets a new assignment wait for the poll that began before it. Such a poll may have returned
// records that were fetched for an earlier assignment of the partition. They lie behind the records
// with which the new assignment begins, so taking them would skip events.
type gate struct {
	mu      sync.Mutex
	polling bool
	cancel  context.CancelFunc
	done    chan struct{} // closed when the records of the poll are taken
}

// enter begins a poll.
func (g *gate) enter(ctx context.Context) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, g.cancel = context.WithCancel(ctx)
	g.polling, g.done = true, make(chan struct{})
	return ctx
}

// leave ends a poll, after its records are taken.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel()
	g.polling = false
	close(g.done)
}

// pass returns when the poll that runs now has ended.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	if !g.polling {
		g.mu.Unlock()
		return nil
	}
	g.cancel()
	done := g.done
	g.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
