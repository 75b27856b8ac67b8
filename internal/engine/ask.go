package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// maxUnanswered limits the abandoned calls of one claim. At the limit the claim waits for one of
// them.
const maxUnanswered = 2

// errUnanswered means that a call was abandoned.
var errUnanswered = fmt.Errorf("%w: no answer in time", dedup.ErrUnavailable)

// asker asks for one claim, under one token, until the store answers. Some clients of databases
// ignore the end of a context. A call that does not return in time goes on in its goroutine, and
// the asker asks again on another connection.
type asker struct {
	access *storeAccess
	token  dedup.Token
	reqs   []dedup.Request

	mu        sync.Mutex
	abandoned int           // calls that were given up and have not returned
	dropped   chan struct{} // not nil: the claim is not wanted any longer; closed when no call is left
}

// ask asks once.
func (a *asker) ask(ctx context.Context, answers []dedup.Answer) error {
	a.mu.Lock()
	full := a.abandoned >= maxUnanswered
	a.mu.Unlock()
	if full {
		return errUnanswered
	}
	slow := a.access.slow.Load()
	began, limit := time.Now(), min(a.access.timeout<<slow, max(a.access.timeout, a.access.lease))
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	got := make([]dedup.Answer, len(answers)) // its own: a call that was given up may still write
	err := a.call(
		bounded,
		func() error { return a.access.store.Claim(bounded, a.token, a.access.lease, a.reqs, got) },
	)
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil && limit < a.access.lease:
		a.access.slow.CompareAndSwap(
			slow, slow+1,
		) // a store that is slow is not to be asked in vain for ever
	case err == nil && time.Since(began) < a.access.timeout/2:
		a.access.slow.Store(0)
	}
	if err == nil && slices.ContainsFunc(got, func(a dedup.Answer) bool { return a.Verdict == 0 }) {
		err = errors.New("store returned no verdict")
	}
	if err == nil {
		copy(answers, got)
	}
	return err
}

// claimResult is the result of a call.
type claimResult struct {
	err      error
	panicked any
}

// call runs fn and returns when it does, or when ctx ends. A panic of fn goes on in the caller.
func (a *asker) call(ctx context.Context, fn func() error) error {
	done := make(chan claimResult, 1)
	var over, left bool // guarded by a.mu
	go func() {
		r := claimResult{err: errUnanswered} // if fn ends its goroutine
		defer func() {
			r.panicked = recover()
			a.mu.Lock()
			over = true
			gone := left
			a.mu.Unlock()
			if gone {
				a.late()
			} else {
				done <- r
			}
		}()
		r.err = fn()
	}()
	select {
	case r := <-done:
		return r.result()
	case <-ctx.Done():
	}
	a.mu.Lock()
	if over {
		a.mu.Unlock()
		r := <-done
		return r.result()
	}
	left = true
	a.abandoned++
	a.access.given.add()
	a.mu.Unlock()
	return fmt.Errorf("%w: %w", errUnanswered, context.Cause(ctx))
}

func (r claimResult) result() error {
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// late handles the return of an abandoned call. A claim that is no longer wanted is released.
func (a *asker) late() {
	defer a.access.given.done()
	a.mu.Lock()
	a.abandoned--
	dropped := a.dropped
	last := dropped != nil && a.abandoned == 0
	a.mu.Unlock()
	if dropped == nil {
		return
	}
	a.access.releaseGhosts(context.Background(), a.token, a.reqs)
	if last {
		close(dropped)
	}
}

// drop releases the claim now, and again after each abandoned call returns.
func (a *asker) drop(ctx context.Context) {
	a.mu.Lock()
	a.dropped = make(chan struct{})
	left := a.abandoned
	a.mu.Unlock()
	if left > 0 {
		timer := time.NewTimer(abandonAfter)
		defer timer.Stop()
		select {
		case <-a.dropped: // each call has released the claim
			return
		case <-timer.C:
		}
	}
	a.access.releaseGhosts(ctx, a.token, a.reqs)
}

// unanswered counts calls that were given up and have not returned.
type unanswered struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // closed when n is zero; nil while n is zero
}

func (u *unanswered) add() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n++; u.n == 1 {
		u.none = make(chan struct{})
	}
}

func (u *unanswered) done() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 {
		close(u.none)
		u.none = nil
	}
}

// wait waits for abandoned calls, for at most d, and returns the number that is left.
func (u *unanswered) wait(d time.Duration) int {
	u.mu.Lock()
	none := u.none
	u.mu.Unlock()
	if none == nil {
		return 0
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.n
}
