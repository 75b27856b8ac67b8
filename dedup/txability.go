package dedup

import (
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
