package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// finishTime is how long the end of an entry is retried when the store does not take it.
const finishTime = 10 * time.Second

// Entry is a key that a caller holds, from [Guard.Enter] to Complete or Release. An Entry is safe
// for concurrent use.
type Entry struct {
	store     Store
	renewer   *LeaseRenewer
	inflight  *inflightCalls
	f         *inflightCall
	keyring   *Keyring
	claim     Claim
	held      *HeldClaims
	retention time.Duration

	// turn has room for one writer of the end. It is a channel, because a writer pauses between its
	// tries for up to finishTime, and fake time does not pass while another one waits for a mutex.
	turn  chan struct{}
	ended bool
}

// lock waits for the writer of the end, and returns the function that lets the next one on.
func (e *Entry) lock() (unlock func()) {
	e.turn <- struct{}{}
	return func() { <-e.turn }
}

// Context returns the context for the work. The context is that of Enter. It is cancelled also at
// the end of the entry, at the loss of the claim and at the close of the guard. The cause of the
// last two matches [ErrClaimLost] or [ErrLeaseRenewerClosed].
func (e *Entry) Context() context.Context { return e.held.Context() }

// Begin checks that the work of the entry may begin. [Guard.Enter] has called Begin once; call
// Begin again if time has passed since.
//
// After an error the work must not begin and the entry has ended, so that the next caller may
// have the key. The error matches [ErrClaimLost] if this process was paused for longer than the
// lease, and [ErrLeaseRenewerClosed] if the guard is closed. Otherwise the error is the cause of
// the end of Enter's context.
func (e *Entry) Begin(ctx context.Context) error {
	if e.held.Alive() {
		return nil
	}
	cause := context.Cause(e.held.Context())
	if cause == nil { // the lease is over and the renewer has not noticed yet
		cause = ErrClaimLost
	}
	_ = e.Release(ctx, Unstarted) // if it does not arrive, the lease ends it
	return fmt.Errorf("claim %q: %w", e.claim.Key, cause)
}

// Claim returns the claim of the entry.
func (e *Entry) Claim() Claim { return e.claim }

// Complete ends the entry and keeps r for later callers. The write is retried for up to ten
// seconds, also after ctx has ended.
//
// The error matches [ErrClaimLost] if another caller has taken the key over. The error matches
// [ErrUnknownOutcome] if the result could not be written: then callers are answered [Busy] until
// the lease is over, and [Uncertain] after it. A result that is larger than the store keeps is
// never written: see [ResultLimiter].
func (e *Entry) Complete(ctx context.Context, r Result) error {
	a := Answer{Verdict: Done, First: e.claim.First, Result: r}
	// The work has had its effect: without a seal, the end is kept without a result.
	sealed, err := e.keyring.Seal(e.claim.Key, r)
	return errors.Join(err, e.end(ctx, a, e.completion(sealed)))
}

// TryComplete is Complete for work that goes on, such as an answer that is sent while its handler
// runs. Without an error the entry has ended, and Context with it. After an error the entry goes
// on. The claim is renewed, the loss of the claim cancels Context, and the caller must end the
// entry with Complete or Release. A write that arrived without an answer is no loss. Nothing is
// written if r cannot be sealed. Retries and other errors are those of Complete.
func (e *Entry) TryComplete(ctx context.Context, r Result) error {
	defer e.lock()()
	if e.ended {
		return e.endedAlready()
	}
	sealed, err := e.keyring.Seal(e.claim.Key, r)
	if err != nil {
		return err
	}
	if err := e.write(ctx, e.completion(sealed)); err != nil {
		return err
	}
	e.ended = true
	e.close(Answer{Verdict: Done, First: e.claim.First, Result: r})
	return nil
}

// completion returns the write of a sealed result.
func (e *Entry) completion(sealed Result) func(context.Context) error {
	return func(ctx context.Context) error {
		return e.renewer.Complete(ctx, Completion{
			Claim: e.claim, Retention: e.retention, Result: sealed,
		})
	}
}

// Release ends the entry without a result; o decides the verdict of the next caller. Retries and
// errors are those of Complete.
func (e *Entry) Release(ctx context.Context, o Outcome) error {
	return e.end(ctx, Answer{}, func(ctx context.Context) error {
		return e.store.Release(ctx, []Release{
			{Claim: e.claim, Outcome: o, Retention: e.retention},
		})
	})
}

// abandon ends the entry without a write: the lease ends the claim, as a run with an unknown
// outcome.
func (e *Entry) abandon() {
	defer e.lock()()
	if e.ended {
		return
	}
	e.ended = true
	e.close(Answer{})
}

// close ends the renewal, and passes a on to followers. An answer without a verdict lets followers
// ask the store.
func (e *Entry) close(a Answer) {
	e.held.StopAll()
	e.inflight.finish(e.claim.Key, e.f, a, nil)
}

var errEnded = errors.New("entry has ended already")

func (e *Entry) endedAlready() error { return fmt.Errorf("key %q: %w", e.claim.Key, errEnded) }

// end writes the end of the entry and passes a on to followers if it was written.
func (e *Entry) end(ctx context.Context, a Answer, write func(context.Context) error) error {
	defer e.lock()()
	if e.ended {
		return e.endedAlready()
	}
	e.ended = true
	var known Answer
	defer func() { e.close(known) }() // also if write panics
	err := e.write(ctx, write)
	if err == nil {
		known = a
	}
	return err
}

// write repeats a write for finishTime, also after ctx has ended.
func (e *Entry) write(ctx context.Context, write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	err := retry(ctx, 0, func() error { return write(ctx) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrClaimLost):
		return fmt.Errorf("key %q: %w", e.claim.Key, err)
	}
	return fmt.Errorf("%w: %q: %w", ErrUnknownOutcome, e.claim.Key, err)
}
