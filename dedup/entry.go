package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// finishTime is how long the end of an entry is tried for when the store does not take it.
const finishTime = 10 * time.Second

// Entry is a key that is held, between [Guard.Enter] and its end. It is safe for concurrent use.
type Entry struct {
	g         *Guard
	f         *inflightCall
	claim     Claim
	kept      *HeldClaims
	retention time.Duration

	mu    sync.Mutex
	ended bool
}

// Context is that of Enter, and is cancelled too when the claim is lost (its cause then matches [ErrClaimLost]), when the guard
// is closed ([ErrLeaseRenewerClosed]) and when the entry ends.
func (e *Entry) Context() context.Context { return e.kept.Context() }

// Begin is asked just before the work of the entry begins. With an error it must not begin: this process was paused for longer than
// the lease ([ErrClaimLost]), the guard is closed ([ErrLeaseRenewerClosed]), or the context of Enter has ended. The entry has ended
// then, and the key is free for the next caller. [Guard.Enter] has asked once; ask again if time has passed since.
func (e *Entry) Begin(ctx context.Context) error {
	if e.kept.Alive() {
		return nil
	}
	cause := context.Cause(e.kept.Context())
	if cause == nil { // the clocks know it before the renewer has looked at them
		cause = ErrClaimLost
	}
	_ = e.Release(ctx, Unstarted) // if it does not arrive, the lease ends it
	return fmt.Errorf("claim %q: %w", e.claim.Key, cause)
}

// Claim is what is held.
func (e *Entry) Claim() Claim { return e.claim }

// Complete ends the entry with a result for all who ask later. It is sent again for up to ten seconds, also when ctx has
// ended: what happened must be known. The error matches [ErrClaimLost] if somebody has taken the key over, or
// [ErrUnknownOutcome] if it could not be written: then callers are told [Busy] until the lease is over, and [Uncertain]
// after it. A result that is larger than the store keeps is never written: see [ResultLimiter].
func (e *Entry) Complete(ctx context.Context, r Result) error {
	return e.end(ctx, Answer{Verdict: Done, First: e.claim.First, Result: r}, func(ctx context.Context) error {
		return e.g.renewer.Complete(ctx, Completion{Claim: e.claim, Retention: e.retention, Result: r})
	})
}

// Release ends the entry without a result: the next caller gets what o says. Errors are those of Complete.
func (e *Entry) Release(ctx context.Context, o Outcome) error {
	return e.end(ctx, Answer{}, func(ctx context.Context) error {
		return e.g.store.Release(ctx, []Release{{Claim: e.claim, Outcome: o, Retention: e.retention}})
	})
}

var errEnded = errors.New("entry has ended already")

// end writes how the entry ended, and lets those who follow know it if that is known.
func (e *Entry) end(ctx context.Context, a Answer, write func(context.Context) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return fmt.Errorf("key %q: %w", e.claim.Key, errEnded)
	}
	e.ended = true
	var known Answer
	defer func() { // also if write panics
		e.kept.StopAll()
		e.g.finish(e.claim.Key, e.f, known, nil)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	err := retry(ctx, 0, func() error { return write(ctx) })
	switch {
	case err == nil:
		known = a
		return nil
	case errors.Is(err, ErrClaimLost):
		return fmt.Errorf("key %q: %w", e.claim.Key, err)
	}
	return fmt.Errorf("%w: %q: %w", ErrUnknownOutcome, e.claim.Key, err)
}
