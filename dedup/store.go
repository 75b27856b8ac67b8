package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps claims. It is safe for concurrent use and comparable with ==.
//
// Every verb takes many keys in as few round trips as the server allows, is atomic per key, and changes nothing when it
// is repeated with the same tokens. On an error other than a [*LostError] the outcome is unknown for all keys of the call:
// never run an effect on it, never mark an event as handled. Every store fails closed.
//
// Leases and retention are measured by the server's clock; the clocks of two hosts are never compared (P-10, R-18).
//
// An error that says nothing about the events but that the store cannot be reached or cannot work now matches
// [ErrUnavailable]: wait and ask again.
type Store interface {
	// Claim answers reqs[i] in answers[i]; both have the same length. Keys must ascend strictly ([CheckRequests]), else
	// nothing is done and the error matches ErrOrder.
	//
	// What the store holds decides:
	//
	//	nothing                          Fresh; TooOld if the origin's time lies before what the store still remembers,
	//	                                 unless the request says AnyAge or its position is above zero
	//	released                         Fresh, or Uncertain if the release or an earlier answer said so
	//	claimed, lease alive             Busy; with the same token the answer of the first call, and the lease begins anew
	//	claimed, lease over              Uncertain: the claim is taken over
	//	done                             Done
	//	dead                             Dead
	//	waiting for another position     Rescheduled if the request's is lower, or of another generation; if its Retry is higher
	//	                                 it is accepted and the record follows (the write of the move was lost)
	//	another fingerprint              Conflict, unless the request's generation is above zero
	//
	// A conflict is found before anything else, and [Answer.Known] says what an equal copy would be told. A copy that was overtaken may be told Busy while a lease lives, and is
	// told Rescheduled once it is over; it is never granted. Doubt is not forgotten: a claim that was Uncertain stays so when the
	// event is moved on to a later attempt.
	Claim(ctx context.Context, t Token, lease time.Duration, reqs []Request, answers []Answer) error

	// Renew lets the leases of claims that are still held begin anew. For the others it returns a *LostError. Its claims,
	// and those of Complete and Release, come in any order and each key once: a store that locks sorts them itself (P-04).
	Renew(ctx context.Context, lease time.Duration, claims []Claim) error

	// Complete ends claims that are still held and returns a *LostError for the others, whose records stay as they are.
	// One exception: a store may write a completion without result as done even if the claim was lost, since that the
	// effect happened is a fact whoever holds the claim (rule 29); it is reported as lost all the same. Repeating a
	// completion that succeeded succeeds.
	//
	// A claim that was released as [Unknown] can still be completed as done under its token, with or without a result, as long as the
	// key was not claimed, discarded or forgotten since: a run that was left behind has succeeded after all (rule 13). Completions with
	// Dead or Retry are refused then.
	Complete(ctx context.Context, done []Completion) error

	// Release gives back claims that are still held, as their Outcome says; for the others it returns a *LostError.
	// Releasing under a token that holds nothing, because its Claim never arrived, changes nothing.
	Release(ctx context.Context, claims []Release) error
}

// TxStore is a Store that can also remember in the transaction of the effects. What it remembers so is apart from the
// claims of Store: a key belongs to one of the two ways.
type TxStore[Tx any] interface {
	Store

	// ClaimTx begins a transaction, claims, runs fn, stores its completions and commits, in one call. The answers are
	// Fresh, Done, Dead, Rescheduled, Conflict or TooOld and are there when fn runs. fn is not run if no key is Fresh. Fresh keys for which fn returns
	// no Completion are Done. Keys must ascend strictly, else the error matches [ErrOrder].
	//
	// While another transaction holds the key, ClaimTx waits for it for a moment; after that a single request is answered
	// Busy with a nil error, also after fn has run if what was kept for the end ([TxWork]) meets such a transaction, and a call with several requests fails with [ErrContended], without effects: repeat them one by one.
	//
	// limit is how long fn may take; the database ends the session of a holder that is gone some seconds later (rule 10).
	//
	// An error of fn rolls back and is returned; it matches [ErrUnavailable] too if the connection is to blame, and
	// [ErrUnknownCommit] if it is not known whether the transaction was committed: claim again and obey the answer. A single
	// request is run again by ClaimTx after a serialization failure or a deadlock, so fn may run more than once. An
	// error of fn that matches [ErrAbandoned] says that something still uses tx: the connection is closed at once.
	//
	// fn may panic. It must not commit or roll back tx: tx refuses to, and if fn does so by SQL the error matches
	// [ErrTxEnded]. See [TxChecker] and [TxEndedError] for several events in one transaction.
	ClaimTx(ctx context.Context, limit time.Duration, reqs []Request, answers []Answer,
		fn func(tx Tx) ([]Completion, error)) error
}

// Checker is an ability of a [Store] with a server: it reports unsafe settings, and whether the server answers.
type Checker interface {
	// Check looks for settings that make the store unsafe, such as a Redis that evicts keys or a table without its
	// unique key. A consumer calls it before the first event, for at most 10 s. Warnings are for the log. An error that
	// matches [ErrUnavailable] is retried; with any other error the consumer does not start.
	Check(ctx context.Context) (warnings []string, err error)
	// Ping returns nil if the server answers now. A consumer calls it after a failed write, to tell an event that the
	// store refuses from a store that is down. A failure to reach the server matches [ErrUnavailable].
	Ping(ctx context.Context) error
}

// Volatiler is an ability of a Store whose memory ends with the process. A consumer of a real broker refuses it unless
// the store says that this is wanted (rule 31).
type Volatiler interface {
	// Volatile returns nil if the loss of everything at a restart was declared as wanted, else what to do about it.
	Volatile() error
}

// StartCounter is an ability of a TxStore: to count, outside the transaction, how often a run was begun without an
// end, since an event that kills its process leaves no trace in a transaction that is rolled back (rule 18).
type StartCounter interface {
	// CountStart adds one to the starts of this record of key and returns the sum. Starts are counted per record (topic,
	// partition, offset of o), since copies of one event may begin at once in several places without anybody having
	// crashed. For a key that is done it counts nothing, forgets all starts, and returns 0.
	CountStart(ctx context.Context, key Key, o Origin) (starts uint32, err error)
	// ClearStarts forgets those of this record: a run ended, well or badly.
	ClearStarts(ctx context.Context, key Key, o Origin) error
}

// The errors of a store.
var (
	// ErrClaimLost matches a [*LostError].
	ErrClaimLost = errors.New("claim lost")
	// ErrUnavailable says that the store cannot be used now. It is nobody's fault: wait, never give up an event for it.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknownCommit says that the connection was lost while committing: the transaction may have happened (P-11). It
	// comes together with ErrUnavailable. Claim again: the answer is Done if it did.
	ErrUnknownCommit = errors.New("outcome of the commit unknown")
	// ErrContended says that several keys were asked for in one transaction and a lock was not to be had at once: nothing
	// happened, ask for them one by one (rule 1).
	ErrContended = errors.New("lock not available for a group")
	// ErrOrder says that requests do not ascend strictly by key.
	ErrOrder = errors.New("requests not strictly ascending by key")
	// ErrAbandoned is returned by a function whose work goes on although nobody waits for it any longer.
	ErrAbandoned = errors.New("run abandoned")
	// ErrTxEnded says that the function ended the transaction it was given (P-13).
	ErrTxEnded = errors.New("handler ended the transaction")
	// ErrNotDead says that there is nothing to reopen.
	ErrNotDead = errors.New("key is not dead")
	// ErrFull says that the store has no room for another key. It comes together with ErrUnavailable: a store never
	// forgets one event for the sake of another.
	ErrFull = errors.New("store full")
)

// LostError says which claims of a call were not held any longer: their lease ended and somebody took them over, or they
// were never granted. It matches [ErrClaimLost]. All other claims of the call were served.
type LostError struct {
	Claims []int // indices into the slice of the call, ascending
}

// Error counts the lost claims.
func (e *LostError) Error() string { return fmt.Sprintf("%d claims lost", len(e.Claims)) }

// Is matches ErrClaimLost.
func (e *LostError) Is(target error) bool { return target == ErrClaimLost }

// Lost returns a *LostError for the given indices, or nil if there are none.
func Lost(claims []int) error {
	if len(claims) == 0 {
		return nil
	}
	return &LostError{Claims: claims}
}

// CheckRequests reports whether a store may serve reqs: as many answers as requests, keys valid and strictly ascending
// (P-04, P-05), retentions positive. Every store calls it first. It clears answers.
func CheckRequests(reqs []Request, answers []Answer) error {
	if len(answers) != len(reqs) {
		return fmt.Errorf("%d requests, %d answers", len(reqs), len(answers))
	}
	clear(answers)
	for i := range reqs {
		if err := reqs[i].Key.Validate(); err != nil {
			return err
		}
		if i > 0 && reqs[i-1].Key.Compare(reqs[i].Key) >= 0 {
			return fmt.Errorf("%w: %q after %q", ErrOrder, reqs[i].Key, reqs[i-1].Key)
		}
		if reqs[i].Retention <= 0 {
			return fmt.Errorf("key %q: retention must be positive", reqs[i].Key)
		}
	}
	return nil
}
