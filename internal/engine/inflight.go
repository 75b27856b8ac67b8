package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// inflight has the events that this process handles now. Without that set, copies of one event in
// two lanes would meet in the database, each with a connection. A handler that needs another
// connection would then wait for those of the copies. No server sees such a deadlock (rule 26). So
// a lane joins the events first. A lane that waits for another lane holds neither a claim nor a
// connection.
type inflight struct {
	mu sync.Mutex
	// The channel exists if another lane waits, and is closed when the event is finished.
	keys map[dedup.Key]chan struct{}
}

// join adds the first of n events, up to the first one that another lane handles. join returns the
// number of added events.
func (f *inflight) join(n int, key func(i int) dedup.Key) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.keys == nil {
		f.keys = make(map[dedup.Key]chan struct{})
	}
	for i := range n {
		k := key(i)
		if _, taken := f.keys[k]; taken {
			return i
		}
		f.keys[k] = nil
	}
	return n
}

// leave removes n events and wakes the lanes that wait for them.
func (f *inflight) leave(n int, key func(i int) dedup.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range n {
		k := key(i)
		if waiting := f.keys[k]; waiting != nil {
			close(waiting)
		}
		delete(f.keys, k)
	}
}

// finished returns a channel that is closed when the event is finished. The channel is nil if no
// lane handles the event.
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

// wait waits until another lane has finished the event.
func (f *inflight) wait(ctx context.Context, k dedup.Key, budget *waitBudget) error {
	done := f.finished(k)
	if done == nil {
		return nil
	}
	return budget.await(ctx, done,
		fmt.Errorf("%w: in another lane of this process", idemtype.ErrBusy))
}
