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

// TxKeeper is an ability of a transaction that [TxStore.ClaimTx] lends to its function: to keep work for its end. Whatever several
// handlers of one transaction queue can so be written in one statement, sorted, just before COMMIT (rule 22).
type TxKeeper interface {
	// KeepTx returns the work that is kept under key, which is compared by ==. If there is none it keeps what begin returns. The
	// error matches [ErrTxEnded] after the function has returned.
	KeepTx(key any, begin func() TxWork) (TxWork, error)
}

// TxWork is kept by a [TxKeeper]. One goroutine at a time calls it.
type TxWork interface {
	// Flush is called once, after the function has returned without an error and just before COMMIT, in the order in which works
	// were first kept. tx is the transaction, of the store's type. An error rolls back, and means what it would mean if the
	// function had returned it. It is not called in a transaction that is rolled back.
	Flush(ctx context.Context, tx any) error
	// Mark says how much there is, when a savepoint is set ([Savepointer]).
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
