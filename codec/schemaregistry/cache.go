package schemaregistry

import (
	"context"
	"sync"
)

// bounded is a cache that drops the oldest entry when full. Safe for concurrent use.
type bounded[K comparable, V any] struct {
	mu    sync.RWMutex
	max   int
	at    map[K]V
	order []K // a ring, in the order of arrival
	next  int
}

func newBounded[K comparable, V any](limit int) *bounded[K, V] {
	return &bounded[K, V]{max: limit, at: make(map[K]V)}
}

func (b *bounded[K, V]) get(k K) (V, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	v, ok := b.at[k]
	return v, ok
}

func (b *bounded[K, V]) put(k K, v V) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.at[k]; !known {
		if len(b.order) < b.max {
			b.order = append(b.order, k)
		} else {
			delete(b.at, b.order[b.next])
			b.order[b.next] = k
			b.next = (b.next + 1) % len(b.order)
		}
	}
	b.at[k] = v
}

func (b *bounded[K, V]) size() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.at)
}

// flights lets callers with the same key share one question. The first caller asks with its own
// context. Safe for concurrent use.
type flights[K comparable, V any] struct {
	mu      sync.Mutex
	running map[K]*flight[V]
}

type flight[V any] struct {
	done  chan struct{}
	value V
	err   error
	cut   bool // the context of the first caller has ended, which is no answer for the others
}

func (f *flights[K, V]) do(
	ctx context.Context, k K, ask func(context.Context) (V, error),
) (V, error) {
	for {
		f.mu.Lock()
		running, ok := f.running[k]
		if !ok {
			return f.ask(ctx, k, ask) // unlocks
		}
		f.mu.Unlock()
		select {
		case <-running.done:
			if !running.cut {
				return running.value, running.err
			}
		case <-ctx.Done():
			var none V
			return none, context.Cause(ctx) //nolint:wrapcheck // the caller adds the question
		}
	}
}

// ask asks as the first caller. The lock is held at the call.
func (f *flights[K, V]) ask(
	ctx context.Context, k K, ask func(context.Context) (V, error),
) (V, error) {
	own := &flight[V]{done: make(chan struct{}), cut: true} // stays cut if ask panics
	if f.running == nil {
		f.running = make(map[K]*flight[V])
	}
	f.running[k] = own
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.running, k)
		f.mu.Unlock()
		close(own.done)
	}()
	own.value, own.err = ask(ctx)
	own.cut = own.err != nil && ctx.Err() != nil
	return own.value, own.err
}
