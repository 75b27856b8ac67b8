package dedup

import (
	"context"
	"time"
)

// TxStore is a [Store] in the database of the effects: claim and completion are part of the
// handler's transaction. The records of ClaimTx are apart from those of Claim: an event type uses
// one of the two.
type TxStore[Tx any] interface {
	Store

	// ClaimTx begins a transaction, claims, runs fn, stores its completions and commits, in one
	// call. The answers are Fresh, Done, Dead, Rescheduled, Conflict or TooOld, and are set when fn
	// runs. Without a Fresh key fn does not run. Fresh keys for which fn returns no Completion are
	// Done. Keys ascend strictly, else the error matches [ErrOrder].
	//
	// While another transaction holds a key, ClaimTx waits for a moment. After that a single
	// request is answered Busy with a nil error. The answer is the same if kept work ([TxWork]) of
	// the request meets such a transaction after fn. A call with several requests fails with
	// [ErrContended] and without effects: repeat them one by one.
	//
	// limit is the time that fn may take. The database ends the session of a holder that has
	// disappeared some seconds later.
	//
	// An error of fn rolls back and is returned. The error matches [ErrUnavailable] too if the
	// connection is the cause, and [ErrUnknownCommit] if the commit may have happened: claim again
	// and use the answer. After a serialization failure or a deadlock ClaimTx runs a single request
	// again, so fn may run more than once. If an error of fn matches [ErrAbandoned], a goroutine
	// still uses tx, and ClaimTx closes the connection at once.
	//
	// fn may panic. fn must not commit or roll back tx: tx refuses to, and if fn uses SQL for that,
	// the error matches [ErrTxEnded], also if fn returns an error, which then stays in the chain.
	// The exception is a single request whose connection is lost after a COMMIT by SQL. The error
	// may not tell of the COMMIT, and the next claim is answered Done. For several events in one
	// transaction see [TxChecker], [TxEndedError] and [GroupError].
	ClaimTx(ctx context.Context, limit time.Duration, reqs []Request, answers []Answer,
		fn func(tx Tx) ([]Completion, error)) error
}

// TxRunner is an ability of a [TxStore]: transactions without a claim. Shadow mode needs the
// ability.
type TxRunner[Tx any] interface {
	// RunTx begins a transaction, runs fn once, and commits, with the errors and limits of ClaimTx.
	// There is no record to look for. If fn sends COMMIT and BEGIN by SQL and then fails, the error
	// may not match [ErrTxEnded].
	RunTx(ctx context.Context, limit time.Duration, fn func(tx Tx) error) error
}

// TxLooker is an ability of a [TxStore]: [Looker] for the records of ClaimTx.
type TxLooker interface {
	// LookTx answers as ClaimTx would, with a zero verdict where ClaimTx would run its function.
	// Transactions that are not committed are not seen.
	LookTx(ctx context.Context, reqs []Request, answers []Answer) error
}

// TxLimiter is an ability of a [TxStore] with a limited number of connections.
type TxLimiter interface {
	// MaxTx returns how many calls of ClaimTx may run at once. Connections must remain for claims
	// and for queries of handlers outside their transaction. Zero: no limit.
	MaxTx() int
}

// StartCounter is an ability of a [TxStore]: a count of runs that began and did not end, kept
// outside the transaction. An event that crashes the process leaves no trace in a transaction that
// is rolled back; the crash guard needs this count.
type StartCounter interface {
	// CountStart adds one to the starts of the record o of key and returns the sum. Starts are
	// counted per record (topic, partition and offset of o), since copies of one event may begin at
	// once in several places without a crash. For a key that is done, CountStart forgets all starts
	// and returns 0.
	CountStart(ctx context.Context, key Key, o Origin) (starts uint32, err error)
	// ClearStarts forgets the starts of the record o: a run ended, with or without an error.
	ClearStarts(ctx context.Context, key Key, o Origin) error
}

// TxChecker is an ability of a transaction that [TxStore.ClaimTx] lends to a function. In a
// transaction of many events the check finds the event that broke the transaction.
type TxChecker interface {
	// CheckTx returns nil while the transaction can be used, without a round trip. The error
	// matches [ErrTxAborted] if a statement has failed and the server will refuse all others.
	// The error matches [ErrTxEnded] if the transaction was ended by SQL, also before the loss
	// of the connection. Otherwise the error of a lost connection matches [ErrUnavailable].
	CheckTx() error
}

// Savepointer is an ability of a transaction that [TxStore.ClaimTx] lends to a function.
type Savepointer interface {
	// Savepoint marks the present state of the transaction. undo returns to that state, also after
	// a statement has failed and the server refuses all others. Call undo at most once, before the
	// function returns.
	Savepoint(ctx context.Context) (undo func(context.Context) error, err error)
}

// TxKeeper is an ability of a transaction that [TxStore.ClaimTx] or [TxRunner.RunTx] lends to a
// function: the transaction keeps work for its end. So entries that several handlers queue are
// written in one sorted statement, just before COMMIT. Savepoints that the transaction offers have
// the ability too: work that is kept in one is rewound with it.
type TxKeeper interface {
	// KeepTx returns the work that is kept under key, which is compared by ==. Without one, KeepTx
	// keeps and returns the result of begin. A function that runs again, as after a serialization
	// failure, has a new transaction without kept work.
	//
	// After the function has returned, the error matches [ErrTxEnded] and no work is kept. Like the
	// transaction, the works are for one goroutine at a time.
	KeepTx(key any, begin func() TxWork) (TxWork, error)
}

// TxWork is kept by a [TxKeeper]. One goroutine at a time calls it.
type TxWork interface {
	// Flush writes the work. The store calls Flush once, after the function has returned without an
	// error and just before COMMIT. Several works are flushed in the order in which they were first
	// kept. tx is the transaction, of the store's type; Flush must not end it. Flush is not called
	// in a transaction that is rolled back or that was ended by SQL, even if effects before that
	// end are durable.
	//
	// ctx ends with that of the call, and at the latest after the time that the store allows.
	//
	// An error or a panic rolls everything back. The cause may be another transaction:
	//
	//   - For several requests the error of ClaimTx matches [ErrContended] if a lock was not
	//     available, if there were too many locks (SQLSTATE 53200), or if Flush took too long.
	//     Repeat the requests one by one, as after any error that names no request.
	//   - The store ends a wait for a lock after some seconds. A single request is then answered
	//     [Busy], although the function has run, and no attempt is counted.
	//   - RunTx, which has no answer, returns ErrContended.
	//
	// Other errors match [ErrUnavailable] under the conditions for those of the function, and also
	// if Flush took too long for another reason. All other errors are failures of the request.
	Flush(ctx context.Context, tx any) error
	// Mark returns the amount of work when a savepoint is set: by [Savepointer], or by the
	// transaction's own method.
	Mark() int
	// Rewind drops the work that was added after Mark returned this number: the savepoint was
	// rolled back. Work that was first kept after the savepoint is rewound to zero.
	Rewind(mark int)
}
