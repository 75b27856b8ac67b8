package dedup

import (
	"errors"
	"fmt"
)

// The errors of a [Store] and a [TxStore].
var (
	// ErrClaimLost matches a [*LostError].
	ErrClaimLost = errors.New("claim lost")
	// ErrUnavailable means that the store cannot be used now. No event is the cause: wait and ask
	// again, and never give up an event for this error.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknownCommit means that the connection was lost during COMMIT: the transaction may have
	// happened. The error matches ErrUnavailable too. Claim again: the answer is Done if the commit
	// happened.
	ErrUnknownCommit = errors.New("outcome of the commit unknown")
	// ErrContended means that one transaction asked for several keys and a lock was not available
	// at once. The call had no effect: ask for the keys one by one.
	ErrContended = errors.New("lock not available for a group")
	// ErrOrder means that requests do not ascend strictly by key.
	ErrOrder = errors.New("requests not strictly ascending by key")
	// ErrAbandoned is returned by a function that leaves work running after the caller has
	// stopped waiting.
	ErrAbandoned = errors.New("run abandoned")
	// ErrTxAborted means that a statement of the transaction failed and the handler ignored the
	// error.
	ErrTxAborted = errors.New(
		"handler ignored an error of the database: its transaction is aborted")
	// ErrTxEnded means that the function ended the lent transaction.
	ErrTxEnded = errors.New("handler ended the transaction")
	// ErrClaimsInDoubt means that a handler of several events may have committed their transaction
	// by SQL, and that the store could not find out, or could not take back the claims of the
	// others. The error has the [TxEndedError] or the [GroupError] that names these events.
	ErrClaimsInDoubt = errors.New("events that never ran may count as handled")
	// ErrFull means that the store has no room for another key. The error matches ErrUnavailable
	// too: a store never forgets one event to make room for another.
	ErrFull = errors.New("store full")
)

// The errors of an [Operator].
var (
	// ErrNotDead means that the event of [Operator.Reopen] was not given up.
	ErrNotDead = errors.New("key is not dead")
	// ErrHeld means that a claim on the key is alive.
	ErrHeld = errors.New("key is held by a live claim")
	// ErrNotFound means that the store has no record of the key.
	ErrNotFound = errors.New("key is not known")
	// ErrSettled means that the event was handled already.
	ErrSettled = errors.New("event was handled already")
)

// The errors of a [Registrar].
var (
	// ErrIdentityChanged means that an event type is on record with another identity descriptor.
	ErrIdentityChanged = errors.New("identity descriptor has changed")
	// ErrOtherScope means that a group without offsets consumes topics that are on record under
	// other scopes only.
	ErrOtherScope = errors.New("topics are known under another scope")
)

// The errors of [Do] and [DoTx]. The function did not run, except where a comment names another
// case.
var (
	// ErrInFlight means that another caller was still running the function when the wait budget of
	// this call was used up: try again later.
	ErrInFlight = errors.New("another caller is still at work on this key")
	// ErrUnknownOutcome means that an earlier run was cut short and may have had the effect. Find
	// out whether it had, then release the key (idem event release) or give up the event (idem
	// event skip).
	//
	// A function that returns an error which matches ErrUnknownOutcome leaves the outcome of this
	// run unknown.
	ErrUnknownOutcome = errors.New("outcome of an earlier run unknown")
	// ErrConflict means that the key was used with another payload.
	ErrConflict = errors.New("key was used with another payload")
	// ErrGivenUp means that a person gave the key up.
	ErrGivenUp = errors.New("key was given up")
	// ErrNoResult means that the function ran before and no result was kept. For example, the
	// function ran through a consumer, or the result could not be encoded or was too large for
	// the store.
	ErrNoResult = errors.New("done before, without a result to replay")
	// ErrResult means that a result could not be encoded, or that a kept result cannot be read as
	// the type of this call. Change the [Schema] when the type changes.
	ErrResult = errors.New("result cannot be read")
	// ErrSealed means that a kept result cannot be opened. The [Keyring] lacks the key, or the
	// result was changed, moved from another key of an event, or stored without a seal. The
	// function does not run again.
	ErrSealed = errors.New("sealed result cannot be opened")
)

// IdentityChangedError names the event types that are on record with another identity descriptor.
// It matches [ErrIdentityChanged].
type IdentityChangedError struct {
	Types []string // sorted, at least one; a store may find only the first
	Err   error    // with both descriptors
}

// Error returns the text of Err.
func (e *IdentityChangedError) Error() string { return e.Err.Error() }

// Unwrap returns ErrIdentityChanged and Err.
func (e *IdentityChangedError) Unwrap() []error { return []error{ErrIdentityChanged, e.Err} }

// LostError lists the claims of a call that were not held. The lease ended and another worker took
// the claim over, or the claim was never granted. The error matches [ErrClaimLost]. All other
// claims of the call were served.
type LostError struct {
	// Claims are indices into the slice of the call, ascending.
	Claims []int
}

// Error returns the number of lost claims.
func (e *LostError) Error() string { return fmt.Sprintf("%d claims lost", len(e.Claims)) }

// Is matches [ErrClaimLost].
func (e *LostError) Is(target error) bool { return target == ErrClaimLost }

// Lost returns a *LostError for the given indices, or nil without an index.
func Lost(claims []int) error {
	if len(claims) == 0 {
		return nil
	}
	return &LostError{Claims: claims}
}

// PartError is an error of [Store.Renew] for a part of the claims, as when one server of several is
// down. A store may return one, also wrapped, if it knows the result for each claim. The claims
// that neither list names were renewed.
//
// The error matches Err and not [ErrClaimLost], since it may be that no claim was lost.
type PartError struct {
	// Failed are indices into the slice of the call, ascending, at least one. The outcome for these
	// claims is unknown.
	Failed []int
	// Lost are indices of claims that were not held, as in a [*LostError]: ascending, and none that
	// is in Failed.
	Lost []int
	// Err is the reason for one of the failures. It must not be nil, and matches [ErrUnavailable]
	// if the store is the cause.
	Err error
}

// Error returns the number of failures and the text of Err.
func (e *PartError) Error() string {
	return fmt.Sprintf("%d claims not renewed: %v", len(e.Failed), e.Err)
}

// Unwrap returns Err.
func (e *PartError) Unwrap() error { return e.Err }

// TxEndedError is returned by the function of [TxStore.ClaimTx] when a handler ended the
// transaction before the events of other requests ran. After a COMMIT, the claims of those events
// are durable although the events never ran. ClaimTx takes those claims back before it returns, so
// that the next claim is Fresh. The error matches [ErrTxEnded].
type TxEndedError struct {
	// Unrun are indices into the requests of the call, ascending.
	Unrun []int
}

// Error names the cause and the number of events that had not run.
func (e *TxEndedError) Error() string {
	return fmt.Sprintf("%v; %d events of the transaction had not run", ErrTxEnded, len(e.Unrun))
}

// Is matches [ErrTxEnded].
func (e *TxEndedError) Is(target error) bool { return target == ErrTxEnded }

// GroupError is returned by the function of [TxStore.ClaimTx] for several requests when one of its
// calls failed. The error has the text and the chain of Err. If ClaimTx finds that the transaction
// had been ended by SQL, ClaimTx takes back the claims of Unrun, as for [TxEndedError], and its
// error matches [ErrTxEnded] too. Otherwise the transaction is rolled back, and Unrun has no effect.
// If Err matches [ErrAbandoned], ClaimTx looks for the end of the transaction after it has closed
// the connection. If ClaimTx cannot find out, and Unrun is
// not empty, its error matches [ErrClaimsInDoubt].
type GroupError struct {
	// Unrun are indices into the requests of the call, ascending: events that did not run, or
	// failed.
	Unrun []int
	// Err is the error of the call. It is not nil.
	Err error
}

// Error returns the text of Err.
func (e *GroupError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *GroupError) Unwrap() error { return e.Err }
