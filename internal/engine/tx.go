package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// inTxTime calls a store that calls a handler in a transaction, perhaps more than once. The store
// has txSlack before each run of the handler, and as much after the last. run carries out one run,
// which limits its own time. abort ends the whole transaction.
func inTxTime(
	hard context.Context,
	call func(ctx context.Context, abort context.CancelCauseFunc, run func(func()) error) error,
) error {
	ctx, cancel := context.WithCancelCause(hard)
	defer cancel(context.Canceled)
	slow := time.AfterFunc(txSlack, func() { cancel(errSlow) })
	defer func() { slow.Stop() }()
	err := call(ctx, cancel, func(fn func()) error {
		slow.Stop()
		if cause := context.Cause(ctx); cause != nil { // the time of the store is over
			return cause
		}
		fn()
		slow = time.AfterFunc(txSlack, func() { cancel(errSlow) })
		return nil
	})
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return err
}

// txOutcome returns the outcome of a failed transaction. The store decides whether the database is
// the cause. After a commit with an unknown outcome the event is claimed again (P-11). A permanent
// failure keeps the handler's own error, unless the handler has ended the transaction (P-13).
func txOutcome(hard context.Context, o outcome, ran bool, err error) outcome {
	switch {
	// No stop: the handler ignored the time-out, and the connection was cut.
	case o.meaning == abandoned && hard.Err() == nil:
		return outcome{meaning: unknown, class: idemtype.ClassTimeout, err: err}
	case o.meaning == abandoned:
		return o
	case ran && o.meaning == permanent:
		if errors.Is(err, dedup.ErrTxEnded) {
			o.err = err
		}
		return o
	case hard.Err() != nil:
		return outcome{meaning: stopped, err: err}
	case errors.Is(err, dedup.ErrUnavailable):
		return outcome{meaning: unavailable, class: idemtype.ClassFailed, err: err}
	case !ran: // no answer, so the event is not the cause
		return outcome{meaning: unavailable, class: idemtype.ClassFailed, err: err}
	case o.meaning == succeeded: // refused by the commit
		return outcome{meaning: transient, class: idemtype.ClassFailed, err: err}
	}
	o.err = err
	return o
}

// errSlow means that a store did not answer a claim or a commit in time.
var errSlow = fmt.Errorf("%w: no answer from a transaction", dedup.ErrUnavailable)

// claimTx asks the store for this event alone.
func (t *task) claimTx(
	ctx context.Context, limit time.Duration, fn func(tx any) ([]dedup.Completion, error),
) (dedup.Answer, error) {
	var answers [1]dedup.Answer
	err := t.tx.ClaimTx(ctx, limit, []dedup.Request{t.request}, answers[:], fn)
	return answers[0], err
}
