package kgoidem

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/observe"
)

// reasons are why a runner ends. Safe for concurrent use.
type reasons struct {
	mu        sync.Mutex
	failure   error // why nothing more can be consumed
	abandoned error // handlers that were left behind
	unsafe    error // offsets that could not be committed at the stop
}

// Err returns why consuming cannot continue, or nil.
func (r *reasons) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// fail notes why consuming cannot continue.
func (r *reasons) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}

// noteAbandoned notes handlers that still run after the end of an assignment.
func (r *reasons) noteAbandoned(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = errors.Join(r.abandoned, err)
}

// noteUnsafe notes offsets that could not be committed.
func (r *reasons) noteUnsafe(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsafe = errors.Join(r.unsafe, err)
}

func (r *reasons) atStop() (abandoned, unsafe error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandoned, r.unsafe
}

// commitHealth passes commits to the observers, and logs each change between success and failure.
type commitHealth struct {
	log       *slog.Logger
	text      func(error) string
	observers []observe.CommitObserver

	mu      sync.Mutex
	failing bool
}

func (c *commitHealth) note(e observe.CommitEvent) {
	c.mu.Lock()
	changed := c.failing != (e.Err != nil)
	c.failing = e.Err != nil
	c.mu.Unlock()
	switch {
	case changed && e.Err != nil:
		c.log.Warn("committing offsets fails, will go on trying", "error", c.text(e.Err))
	case changed:
		c.log.Info("committing offsets works again")
	}
	for _, o := range c.observers {
		o.ObserveCommit(context.Background(), e)
	}
}

// retrier decides whether an error ends Run, and turns a stream of errors into changes of state: one
// log line when consuming begins to fail, and one when it works again.
type retrier struct {
	log    *slog.Logger
	text   func(error) string
	served atomic.Bool // a session has begun

	mu    sync.Mutex
	since time.Time
}

// fatal returns the error to end Run with, else nil. Missing rights end a start. Rights that are
// withdrawn later are waited for, like other parts that fail later.
func (r *retrier) fatal(err error) error {
	end := fatal(err)
	if end == nil || isDenied(err) && !isLogin(err) && r.served.Load() {
		return nil
	}
	return end
}

// begin logs that the group cannot be consumed now.
func (r *retrier) begin(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		r.since = time.Now()
		r.log.Warn("cannot consume, will go on trying", "error", r.text(err))
	}
}

// over logs that the group can be consumed again.
func (r *retrier) over() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.since.IsZero() {
		r.log.Info("consuming again", "after", time.Since(r.since).Round(time.Millisecond))
		r.since = time.Time{}
	}
}

// wait waits before the next try, unless err is fatal or ctx has ended.
func (r *retrier) wait(ctx context.Context, back *backoff, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.fatal(err); err != nil {
		return err
	}
	r.begin(err)
	return pause(ctx, back.next())
}

// backoff waits longer each time, up to 10 s. The random part keeps members from retrying in step
// (K-18, K-42).
type backoff struct{ tries int }

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// next returns how long to wait.
func (b *backoff) next() time.Duration {
	limit := min(minBackoff<<min(b.tries, 10), maxBackoff)
	b.tries++
	return limit/2 + rand.N(limit/2) //nolint:gosec // not a secret
}

// pause returns the cause of ctx if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
