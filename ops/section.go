package ops

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// This file isolates sources: a failure or a hanging source costs its own section of a page, for a
// bounded time.

// part is the content of a section: a value, or the reason for a missing value.
type part[T any] struct {
	Value   T
	Problem string    // reason for a missing value
	Missing string    // the setting that is needed
	At      time.Time // when it was asked for
}

// OK reports whether there is a value.
func (p part[T]) OK() bool { return p.Problem == "" && p.Missing == "" }

func missing[T any](how string) part[T] { return part[T]{Missing: how} }

// timeoutError is for a source that was cut off.
type timeoutError time.Duration

func (e timeoutError) Error() string {
	return fmt.Sprintf("no whole answer within %s", time.Duration(e))
}

// result of a call.
type result[T any] struct {
	value T
	err   error
	at    time.Time
}

func (r result[T]) part() part[T] {
	p := part[T]{Value: r.value, At: r.at}
	if r.err != nil {
		p.Problem = problemText(r.err)
	}
	return p
}

// problemText returns the text of an error for a page, of bounded length. Templates escape it.
func problemText(err error) string {
	if errors.Is(err, context.Canceled) {
		return "the page is being closed"
	}
	return clip(idem.ErrorText(err), 500) // it quotes no data and no passwords (G-04)
}

// background runs the calls of sources. A call may outlive its request.
type background struct {
	ctx     context.Context // until Close of the handler
	stop    context.CancelFunc
	work    sync.WaitGroup
	now     func() time.Time
	timeout time.Duration // the longest wait of a request
	places  *places       // of reads of whole topics, and other searches
}

// cell asks a source that is equal for all persons: never concurrently, and at most once in an
// interval.
type cell[T any] struct {
	bg    *background
	keep  time.Duration // how long an answer is good enough
	limit time.Duration // of one call, if the source obeys the context
	// sparing: an answer is valid for sixty times the duration of the call, and a failure for six
	// times. So the page is never a load of its own.
	sparing bool
	fetch   func(context.Context) (T, error)

	mu      sync.Mutex
	last    result[T]
	running chan struct{} // closed when the call that is under way ends
	since   time.Time     // when that, or the last one, began
}

// get returns an answer that is at most c.keep old, or a problem after c.bg.timeout. The call
// then goes on for the next visitor, and there is never a second one.
func (c *cell[T]) get(ctx context.Context) part[T] {
	c.mu.Lock()
	if !c.last.at.IsZero() && c.bg.now().Sub(c.last.at) < c.goodFor() && c.running == nil {
		defer c.mu.Unlock()
		return c.last.part()
	}
	if c.running == nil && c.bg.ctx.Err() != nil {
		c.mu.Unlock()
		return part[T]{Problem: problemText(errClosed), At: c.bg.now()}
	}
	if c.running == nil {
		c.running, c.since = make(chan struct{}), c.bg.now()
		c.bg.work.Go(c.call)
	}
	running, left := c.running, c.bg.timeout-c.bg.now().
		Sub(c.since)
		// a hanging call is waited for once
	c.mu.Unlock()
	if err := wait(ctx, running, left); err != nil {
		return part[T]{Problem: problemText(err), At: c.bg.now()}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.part()
}

func (c *cell[T]) goodFor() time.Duration {
	if !c.sparing {
		return c.keep
	}
	took := c.last.at.Sub(c.since)
	if c.last.err != nil { // an outage that may be over
		return max(c.keep, 6*took)
	}
	return max(c.keep, 60*took)
}

func (c *cell[T]) call() {
	ctx, cancel := context.WithTimeout(c.bg.ctx, c.limit)
	defer cancel()
	value, err := shielded(ctx, c.fetch)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = result[T]{value, err, c.bg.now()}
	close(c.running)
	c.running = nil
}

// ask asks a source for one person. It takes a place and waits for at most limit. A source that
// obeys the context has returned by then, with partial results.
func ask[T any](
	v *visit, bg *background, limit time.Duration, fetch func(context.Context) (T, error),
) part[T] {
	if bg.ctx.Err() != nil {
		return part[T]{Problem: problemText(errClosed), At: bg.now()}
	}
	visitor := v.context()
	leave, err := bg.places.enter(visitor, bg.ctx, v.who, bg.timeout)
	if err != nil {
		return part[T]{Problem: problemText(err), At: bg.now()}
	}
	var r result[T]
	done := make(chan struct{})
	bg.work.Go(func() {
		defer close(done)
		defer leave()
		ctx, cancel := context.WithTimeout(bg.ctx, limit)
		defer cancel()
		defer context.AfterFunc(visitor, cancel)()
		value, err := shielded(ctx, fetch)
		if errors.Is(err, context.DeadlineExceeded) {
			err = timeoutError(limit)
		}
		r = result[T]{value, err, bg.now()}
	})
	if err := wait(visitor, done, limit+graceOfAsk); err != nil {
		return part[T]{Problem: problemText(err), At: bg.now()}
	}
	return r.part()
}

// graceOfAsk lets a cancelled source return its partial results.
const graceOfAsk = 250 * time.Millisecond

// wait waits for done.
func wait(ctx context.Context, done <-chan struct{}, limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return errNoAnswer
	}
}

// shielded turns a panic of a source into an error.
func shielded[T any](
	ctx context.Context, fetch func(context.Context) (T, error),
) (value T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return fetch(ctx)
}

// together runs all at once and waits for all.
func together(all ...func()) {
	var wg sync.WaitGroup
	for _, f := range all {
		wg.Go(f)
	}
	wg.Wait()
}
