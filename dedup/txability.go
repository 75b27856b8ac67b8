package dedup

import (
	"context"
	"errors"
	"fmt"
)

// TxChecker is an ability of a transaction that [TxStore.ClaimTx] lends to its function: to say, without a round trip,
// what state it is in, so that in a transaction of many events the right one is blamed (rule 12).
type TxChecker interface {
	// CheckTx returns nil while the transaction can be worked in. The error matches [ErrTxAborted] if a statement has failed and
	// the server will refuse all others, [ErrTxEnded] if the transaction was ended by SQL, and [ErrUnavailable] if the
	// connection is gone.
	CheckTx() error
}

// TxKeeper is an ability of a transaction that [TxStore.ClaimTx] lends to its function, and [TxRunner.RunTx] too: to keep work for its
// end. Whatever several handlers of one transaction queue can so be written in one statement, sorted, just before COMMIT (rule 22). The
// savepoints of such a transaction have it as well, if it hands out any: what is kept in one is rewound with it.
type TxKeeper interface {
	// KeepTx returns the work that is kept under key, which is compared by ==. If there is none it keeps what begin returns. A function
	// that is run again, as after a serialization failure, has a new transaction, in which nothing is kept.
	//
	// The error matches [ErrTxEnded] once the function has returned, for a goroutine that it left behind and for the works themselves too:
	// then nothing is kept. Like the transaction, the works are for one goroutine at a time.
	KeepTx(key any, begin func() TxWork) (TxWork, error)
}

// TxWork is kept by a [TxKeeper]. One goroutine at a time calls it.
type TxWork interface {
	// Flush is called once, after the function has returned without an error and just before COMMIT, in the order in which works
	// were first kept. tx is the transaction, of the store's type, and as little to be ended by Flush as by the function. It is not called
	// in a transaction that is rolled back, nor in one that was ended by SQL: what was kept for that is not written, even if effects before
	// the end are durable.
	//
	// An error rolls everything back, and a panic is an error. The function is not to blame for it, nor is one of many requests: for several
	// the error of ClaimTx matches [ErrContended] if a lock was not to be had, if there were too many of them (SQLSTATE 53200) or if it took too
	// long; they are to be repeated one by one, as they are after any error that names none of them. Waiting for a lock of somebody
	// who does not go on is ended by the store after some seconds: a single request is answered [Busy] then, although its function
	// has run, and is asked for again without an attempt being counted (rule 10). RunTx, which has no answer, returns ErrContended.
	// Otherwise errors match [ErrUnavailable] as those of the function do, and also if Flush took too long for another reason; what remains is a
	// failure of the request. ctx ends with that of the call, and at the latest after the time that the store allows.
	Flush(ctx context.Context, tx any) error
	// Mark says how much there is, when a savepoint is set ([Savepointer], or one of the transaction's own).
	Mark() int
	// Rewind drops what has come since Mark returned that number: the savepoint was rolled back. A work that was kept later than the
	// savepoint is rewound to zero.
	Rewind(mark int)
}

// TxLimiter is an ability of a [TxStore]: to say how many transactions may run at once.
type TxLimiter interface {
	// MaxTx is how many calls of ClaimTx may run at once so that connections are left for everything else: claims, and
	// what handlers read beside their transaction (rules 25 and 26). Zero: no limit.
	MaxTx() int
}

// ErrTxAborted says that a statement of the transaction failed and the handler went on as if it had not (P-12).
var ErrTxAborted = errors.New("handler ignored an error of the database: its transaction is aborted")

// TxEndedError is what the function of [TxStore.ClaimTx] returns when it finds that a handler ended the transaction before
// the events of other requests were run. If it was ended by COMMIT, the claims of those events are durable although they
// never ran: ClaimTx takes them back before it returns this error, so that the next claim is Fresh (rule 12). It matches [ErrTxEnded].
type TxEndedError struct {
	Unrun []int // indices into the requests of the call, ascending
}

// Error names the rule that was broken.
func (e *TxEndedError) Error() string {
	return fmt.Sprintf("%v; %d events of the transaction had not run", ErrTxEnded, len(e.Unrun))
}

// Is matches ErrTxEnded.
func (e *TxEndedError) Is(target error) bool { return target == ErrTxEnded }
