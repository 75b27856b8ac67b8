package dedup

import (
	"context"
	"fmt"
	"time"
)

// Store remembers events and grants claims. Implementations are safe for concurrent use and
// comparable with ==.
//
// Every method takes many keys in as few round trips as the server allows, and is atomic per
// key. A repetition with the same tokens has no further effect. A claim that is neither
// completed nor released ends with the lease.
//
// After an error other than a [*LostError] the outcome is unknown for all keys of the call. Then
// run no handler, and mark no event as handled. A [*PartError] of Renew is the only exception. An
// error that matches [ErrUnavailable] means that
// the store is the cause, not the events: wait and ask again.
//
// Leases and retentions are measured by the server's clock. The clocks of two hosts are never
// compared.
type Store interface {
	// Claim answers reqs[i] in answers[i]; both have the same length. Keys ascend strictly
	// ([CheckRequests]), else the call has no effect and the error matches [ErrOrder].
	//
	// The record of the key decides:
	//
	//	no record                     Fresh; TooOld if the origin's time lies before the horizon,
	//	                              unless AnyAge is set or the position is above zero
	//	released                      Fresh; Uncertain if the release was Unknown, or if an earlier
	//	                              claim of this attempt was Uncertain
	//	claimed, lease alive          Busy; with the same token the answer of the first call, and
	//	                              the lease begins anew
	//	claimed, lease over           Uncertain: the claim is taken over
	//	done                          Done
	//	dead                          Dead
	//	waits for another position    Rescheduled if the request's position is lower, or of another
	//	                              generation. A higher Retry is granted, and the record follows:
	//	                              the completion that rescheduled the event was lost
	//	another fingerprint           Conflict, unless the request's generation is above zero
	//
	// A conflict is found before anything else; [Answer.Known] has the verdict for an equal copy. A
	// copy with a position that is too low is never granted: the answer may be Busy while a lease
	// lives, and is Rescheduled after that. An Uncertain event stays so when rescheduled.
	Claim(ctx context.Context, t Token, lease time.Duration, reqs []Request, answers []Answer) error

	// Renew begins the leases of held claims anew. The other claims are returned in a [*LostError].
	// A failure for a part of the claims should be a [*PartError], so that the others keep their
	// leases. After any other error, no lease counts as renewed.
	//
	// The claims of Renew, Complete and Release come in any order, each key once: a store that
	// locks rows must sort.
	Renew(ctx context.Context, lease time.Duration, claims []Claim) error

	// Complete ends held claims. The other claims are returned in a [*LostError], and the
	// records of those keys stay unchanged. One exception: a store may record a completion
	// without result as done although the claim was lost, since the effect has happened. The
	// claim is still reported as lost. A repetition of a completion that succeeded succeeds.
	//
	// A claim that was released as [Unknown] can still be completed as done under its token,
	// with or without a result. The condition: the key was not claimed, discarded or forgotten
	// since. Completions with Dead or Retry are refused then. After a release with another outcome
	// the claim is lost. One exception: a store that does not keep the outcome may accept such a
	// completion if the claim was Uncertain.
	Complete(ctx context.Context, done []Completion) error

	// Release gives held claims back with their outcomes. The other claims are returned in a
	// [*LostError]. A release under a token without a claim, as when the Claim never arrived, has
	// no effect.
	Release(ctx context.Context, claims []Release) error
}

// CheckRequests returns nil if a store may serve reqs: as many answers as requests, valid keys that
// ascend strictly, and positive retentions. CheckRequests clears answers. Call it first in
// [Store.Claim], [TxStore.ClaimTx] and the look-ups.
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

// Looker is an ability of a [Store]: look-ups without claims. All stores of this module have the
// ability.
type Looker interface {
	// Look answers as Claim would, without a write or a claim: where Claim would grant the claim,
	// the answer is zero. Keys and errors are those of Claim. A held claim is Busy for the holder
	// too, since Look has no token.
	//
	// Look takes one round trip. Never run a handler on a looked-up answer: another worker may
	// claim meanwhile.
	Look(ctx context.Context, reqs []Request, answers []Answer) error
}

// Checker is an ability of a [Store] with a server: checks of the settings and of the connection.
type Checker interface {
	// Check looks for settings that make the store unsafe, such as a Redis that evicts keys or a
	// table without the unique key. A consumer calls it before the first event, for at most 10 s.
	// Warnings are for the log. A consumer retries after an error that matches [ErrUnavailable],
	// and does not start after any other error.
	Check(ctx context.Context) (warnings []string, err error)
	// Ping returns nil if the server answers now; else the error matches [ErrUnavailable]. A
	// processor calls Ping after a failed write, to distinguish a store that is down from an event
	// that the store refuses.
	Ping(ctx context.Context) error
}

// Watcher is an ability of a [Store] with a server that may be replaced, or get other settings,
// while the store is in use.
type Watcher interface {
	// Watch returns warnings for the log about changes since the last call of Check or Watch.
	// Another server may answer, which may lack records, or a setting may have become unsafe. One
	// call reports each change. Without an earlier call, Watch cannot compare servers.
	//
	// A runner calls Watch once a minute, for at most 10 s. The error of a server that does not
	// answer matches [ErrUnavailable]; the next call compares with the same state then.
	Watch(ctx context.Context) (warnings []string, err error)
}

// CallSharer is an ability of a [Store] with a method Claim that observes [Request.Token]. The
// callers of a [LeaseRenewer] share calls of Claim then.
type CallSharer interface {
	// SharedCalls returns how many shared calls one process makes at the same time, from 1 on.
	// Calls of Claim and of Complete count separately. More of them only make each smaller: 1 suits
	// a server with one thread. Calls that take more than 100 ms do not count.
	SharedCalls() int
}

// Volatiler is an ability of a [Store] that forgets all events at the end of the process.
type Volatiler interface {
	// Volatile returns nil if the loss of all events at a restart was declared as wanted. Else the
	// error names the declaration that is missing, and a consumer does not start.
	Volatile() error
}

// ResultLimiter is an ability of a [Store] that cannot keep results of any size.
type ResultLimiter interface {
	// MaxResult returns the maximum length of [Result.Data] in bytes. A completion with a larger
	// one fails.
	MaxResult() int
}
