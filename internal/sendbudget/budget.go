// Package sendbudget bounds the bytes that a Kafka producer holds, for all runners.
package sendbudget

import (
	"context"
	"errors"
	"sync"
	"time"
)

// MaxInFlight is the limit of the runners, also for calls that have ended.
const MaxInFlight = 32 << 20

// Budget counts the bytes of the records that the client holds and has not reported on. Waiting
// ends with a context.
type Budget struct {
	limit int

	mu      sync.Mutex
	used    int
	locked  bool
	waiting int
	changed chan struct{}
}

// New returns a budget of some bytes.
func New(limit int) *Budget { return &Budget{limit: limit, changed: make(chan struct{})} }

// Take waits for n bytes. The owner of the lock does not wait. A record larger than the whole
// budget waits until no other record is in flight.
func (b *Budget) Take(ctx context.Context, n int, owner bool) error {
	return b.await(ctx, func() bool {
		if !owner && (b.locked || b.used > 0 && b.used+n > b.limit) {
			return false
		}
		b.used += n
		return true
	})
}

// Give returns n bytes.
func (b *Budget) Give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.wake()
}

// ErrOthersInFlight is the error of [Budget.Lock] at the end of its wait.
var ErrOthersInFlight = errors.New("other messages are still in flight")

// Lock keeps other calls out and waits, for at most wait, until no record is in flight.
func (b *Budget) Lock(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, ErrOthersInFlight)
	defer cancel()
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
		b.Unlock()
		return err
	}
	return nil
}

// Unlock lets other calls in again.
func (b *Budget) Unlock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locked = false
	b.wake()
}

// Used returns the bytes in flight.
func (b *Budget) Used() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// await calls try, under the mutex, after each change until try reports true.
func (b *Budget) await(ctx context.Context, try func() bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !try() {
		changed := b.changed
		b.waiting++
		b.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		b.mu.Lock()
		b.waiting--
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Budget) wake() {
	if b.waiting > 0 {
		close(b.changed)
		b.changed = make(chan struct{})
	}
}
