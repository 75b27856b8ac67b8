package kgoidem

import (
	"context"
	"sync"
)

// maxInFlight bounds the bytes that franz-go holds, also for calls that have ended.
const maxInFlight = 32 << 20

// budget counts the bytes of records without a result. Waiting ends with a context.
type budget struct {
	limit int

	mu      sync.Mutex
	used    int
	locked  bool
	changed chan struct{}
}

func newBudget(limit int) *budget { return &budget{limit: limit, changed: make(chan struct{})} }

// take waits for n bytes. The owner of the lock does not wait. A record larger than the whole
// budget waits until no other record is in flight.
func (b *budget) take(ctx context.Context, n int, owner bool) error {
	return b.await(ctx, func() bool {
		if !owner && (b.locked || b.used > 0 && b.used+n > b.limit) {
			return false
		}
		b.used += n
		return true
	})
}

// give returns n bytes.
func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.wake()
}

// lock keeps other calls out and waits until no record is in flight.
func (b *budget) lock(ctx context.Context) error {
	err := b.await(ctx, func() bool {
		if b.locked {
			return false
		}
		b.locked = true
		return true
	})
	if err != nil {
		return err
	}
	if err := b.await(ctx, func() bool { return b.used == 0 }); err != nil {
		b.unlock()
		return err
	}
	return nil
}

func (b *budget) unlock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locked = false
	b.wake()
}

// await calls try, under the mutex, after each change until try reports true.
func (b *budget) await(ctx context.Context, try func() bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !try() {
		changed := b.changed
		b.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		b.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *budget) wake() {
	close(b.changed)
	b.changed = make(chan struct{})
}
