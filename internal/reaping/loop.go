// Package reaping has the loop of every reaper: one run after the other, under a lease. It also has
// the work on one scope. A store has the statements, and the types that users see.
package reaping

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// leaveLimit bounds the end of the lease, which the caller's context does not.
const leaveLimit = 10 * time.Second

// Loop runs a reaper. A Loop is safe for concurrent use. Concurrent runs of one Loop wait for each
// other.
type Loop[A any] struct {
	store Store[A]
	cfg   Config

	mu       sync.Mutex
	token    dedup.Token
	lease    time.Duration
	renewed  time.Time
	leased   bool
	noLookAt time.Time // before this time: no search for stuck claims
	silent   silentLog
}

// New returns a loop over a store. cfg has no mistakes, and a value for each default.
func New[A any](store Store[A], cfg *Config) *Loop[A] {
	return &Loop[A]{store: store, cfg: *cfg, token: dedup.NewToken(),
		// longer than a transaction, and than the pause between two runs
		lease: cfg.Interval + 2*ChoreLimit}
}

// Run makes one run after the other until ctx ends. It logs trouble, its end and deletions, and
// calls observe, if not nil, after each run.
func (l *Loop[A]) Run(ctx context.Context, observe func(Result[A], error)) {
	defer l.leave(ctx)
	var t trouble
	for {
		result, end, err := l.run(ctx)
		if ctx.Err() != nil {
			return
		}
		begins, ends := t.note(end, err)
		l.log(ctx, &result, err, begins, ends)
		if observe != nil {
			observe(result, err)
		}
		timer := time.NewTimer(l.cfg.Interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// RunOnce makes one run.
func (l *Loop[A]) RunOnce(ctx context.Context) (Result[A], error) {
	defer l.leave(ctx)
	result, _, err := l.run(ctx)
	return result, err
}

// leave ends the lease, so that another reaper can work at once. After an error the lease ends by
// itself.
func (l *Loop[A]) leave(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if l.leased && l.store.Leave(ctx, l.token) == nil {
		l.leased = false
	}
}
