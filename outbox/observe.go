package outbox

import (
	"context"
	"time"
)

// Observer watches a relay ([RelayConfig].Observers) or the adding of entries (pgoutbox.Observers).
// An observer is any value that implements one or more of the interfaces below. An observer without
// an interface of that place is refused.
//
// The methods must be quick: the work waits for them. The goroutine of [Relay.Run] calls the
// observers of a relay.
type Observer any

// AddObserver sees every entry that is added, one by one. BeginAdd can change the trace that the
// entry carries.
//
// The goroutine that adds calls both methods. The end of the call does not decide whether the entry
// is published: the transaction may still be rolled back, and run again. See [WriteObserver].
type AddObserver interface {
	// BeginAdd gets an entry that has its ID, before the entry is checked. e has the headers of the
	// caller. The trace of the returned context is added, unless e already has one. The result must
	// be derived from ctx. Do not change e, and do not keep e after EndAdd.
	BeginAdd(ctx context.Context, e *Entry) context.Context
	// EndAdd gets the context that BeginAdd returned, at the end of the call that added e. After an
	// error no entry of that call is added.
	EndAdd(ctx context.Context, e *Entry, err error)
}

// WriteObserver sees entries when they are written in their transaction, usually just before the
// commit. A transaction that is run again writes again.
type WriteObserver interface {
	ObserveWrite(context.Context, Write)
}

// Write is entries that were written together, of any number of topics. Do not keep a Write after
// the call.
type Write struct {
	// Entries has at least one entry. Do not change the slice.
	Entries []Entry
	// Took is the duration of the write, with the wait for other writers of the same topics and
	// keys.
	Took time.Duration
	// Err is the error of the write, or nil.
	Err error
}
