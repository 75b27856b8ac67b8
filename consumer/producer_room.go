package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// maxUnderWay bounds what sarama holds in bytes, that of calls whose context has ended included.
const maxUnderWay = 32 << 20

// perMessage is about what sarama needs for a message beside its bytes.
const perMessage = 512

func weightOf(m *idem.Message) int { return sizeOf(m) + perMessage }

// room counts what was given to sarama and has no result yet. Waiting ends with a context.
type room struct {
	limit int

	mu      sync.Mutex
	used    int
	locked  bool
	waiting int
	changed chan struct{}
}

func newRoom(limit int) *room { return &room{limit: limit, changed: make(chan struct{})} }

// take waits for n of the room; whoever has locked it does not wait. What is larger than all of it has all of it.
func (r *room) take(ctx context.Context, n int, owner bool) error {
	return r.await(ctx, func() bool {
		if !owner && (r.locked || r.used > 0 && r.used+n > r.limit) {
			return false
		}
		r.used += n
		return true
	})
}

// give returns it.
func (r *room) give(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	r.wake()
}

var errOthersUnderWay = errors.New("other messages are still under way")

// lock keeps others out and waits until nothing is under way, for no longer than wait.
func (r *room) lock(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errOthersUnderWay)
	defer cancel()
	err := r.await(ctx, func() bool {
		if r.locked {
			return false
		}
		r.locked = true
		return true
	})
	if err != nil {
		return err
	}
	if err := r.await(ctx, func() bool { return r.used == 0 }); err != nil {
		r.unlock()
		return err
	}
	return nil
}

func (r *room) unlock() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locked = false
	r.wake()
}

// await calls try, under the mutex, whenever something has changed, until it reports true.
func (r *room) await(ctx context.Context, try func() bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !try() {
		changed := r.changed
		r.waiting++
		r.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		r.mu.Lock()
		r.waiting--
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *room) wake() {
	if r.waiting > 0 {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}
