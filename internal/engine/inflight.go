package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// inflight are the events that this process has in hand. Copies of one event that come to two lanes would otherwise meet
// in the database, each with a connection, and a handler that needs another connection would wait for the ones that the copies
// hold: a deadlock that no server sees (rule 26). So a lane takes an event in hand before it asks for anything else, and
// waits for one that is in hand elsewhere while it holds nothing.
type inflight struct {
	mu   sync.Mutex
	keys map[dedup.Key]chan struct{} // the channel is there if somebody waits, and closed when the event is let go
}

// join takes events in hand, from the front, up to the first that is in hand already. It returns how many it took.
func (f *inflight) join(tasks []*task) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys = make(map[dedup.Key]chan struct{})
	}
	for i, t := range tasks {
		if _, taken := f.keys[t.request.Key]; taken {
			return i
		}
		f.keys[t.request.Key] = nil
	}
	return len(tasks)
}

// finish lets events go and wakes who waits for them.
func (f *inflight) finish(tasks []*task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range tasks {
		if waiting := f.keys[t.request.Key]; waiting != nil {
			close(waiting)
		}
		delete(f.keys, t.request.Key)
	}
}

// finished returns a channel that is closed when the event is let go, or nil if nobody has it.
func (f *inflight) finished(k dedup.Key) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiting, taken := f.keys[k]
	if !taken {
		return nil
	}
	if waiting == nil {
		waiting = make(chan struct{})
		f.keys[k] = waiting
	}
	return waiting
}

// wait waits until another lane lets go of the event.
func (f *inflight) wait(ctx context.Context, k dedup.Key, budget *waitBudget) error {
	landed := f.finished(k)
	if landed == nil {
		return nil
	}
	return budget.await(ctx, landed, fmt.Errorf("%w: in another lane of this process", idemtype.ErrBusy))
}
