// Package lazyctx has a context with a deadline that is built when it is first needed. Most
// handlers never ask for Done and derive no context, so they need neither a channel nor a timer.
package lazyctx

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Context equals the context of [context.WithTimeoutCause], also for contexts derived from it. That
// context is built at the first call of Done, which every derived context makes, or after the end.
//
// The owner has a timer of its own and calls Expire when the timer fires. Without that call a later
// end of the parent could come first. A Context is safe for concurrent use.
type Context struct {
	parent   context.Context
	deadline time.Time // zero: the parent ends earlier
	cause    error     // cause of the end at the deadline

	mu        sync.Mutex
	built     context.Context // nil until it is needed
	stop      context.CancelFunc
	cancelled bool // Cancel came first, before built was needed
}

// WithTimeoutCause returns a context that ends with the parent, at the call of Cancel, or after
// timeout with cause.
func WithTimeoutCause(parent context.Context, timeout time.Duration, cause error) *Context {
	c := &Context{parent: parent, deadline: time.Now().Add(timeout), cause: cause}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(c.deadline) {
		c.deadline = time.Time{}
	}
	return c
}

// Expire notes that the deadline has passed or that the parent has ended.
func (c *Context) Expire() { c.builtIfEnded() }

// Cancel ends the context. Cancel may be called more than once.
func (c *Context) Cancel() {
	c.mu.Lock()
	if c.built == nil {
		if c.ended() {
			c.build()
		} else {
			c.cancelled = true
		}
	}
	stop := c.stop
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Deadline implements [context.Context].
func (c *Context) Deadline() (deadline time.Time, ok bool) {
	if c.deadline.IsZero() {
		return c.parent.Deadline()
	}
	return c.deadline, true
}

// Done implements [context.Context].
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.built == nil {
		c.build()
	}
	return c.built.Done()
}

// Err implements [context.Context].
func (c *Context) Err() error {
	if built := c.builtIfEnded(); built != nil {
		return built.Err()
	}
	return nil
}

// Value implements [context.Context]. Package context asks here for the cause of an ended context
// and, after a call of Done, for the context to attach to. Both are built by then.
func (c *Context) Value(key any) any {
	if built := c.builtIfEnded(); built != nil {
		return built.Value(key)
	}
	return c.parent.Value(key)
}

// String keeps a printed context from being read field by field.
func (c *Context) String() string {
	deadline, _ := c.Deadline()
	return fmt.Sprintf("%v.WithDeadline(%v [%v])", c.parent, deadline, time.Until(deadline))
}

// builtIfEnded returns the built context. Before the end it is nil if there was no need for it.
func (c *Context) builtIfEnded() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.built == nil && c.ended() {
		c.build()
	}
	return c.built
}

// ended reports whether the context has ended. mu is held.
func (c *Context) ended() bool {
	return c.cancelled || c.parent.Err() != nil ||
		!c.deadline.IsZero() && !time.Now().Before(c.deadline)
}

// build builds the context as package context does. mu is held.
func (c *Context) build() {
	switch {
	case c.cancelled: // the parent and the deadline came later
		c.built, c.stop = context.WithCancel(context.WithoutCancel(c.parent))
		c.stop()
	case c.deadline.IsZero():
		c.built, c.stop = context.WithCancel(c.parent)
	default:
		c.built, c.stop = context.WithDeadlineCause(c.parent, c.deadline, c.cause)
	}
}
