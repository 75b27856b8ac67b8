package kgoidem

import (
	"context"
	"errors"
	"log/slog"
	"sync"

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
