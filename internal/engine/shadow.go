package engine

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// This file is shadow mode: the store records events as usual, and every event runs. An existing
// consumer runs in shadow mode until the store knows the events in its topics, and until it would
// skip only the expected ones.

// runIgnored runs an event that would have been skipped, without a claim. The retry policy applies
// to its failures.
func (p *Processor) runIgnored(
	ctx, hard context.Context, t *task, a dedup.Answer,
) (attemptResult, error) {
	if ctx.Err() != nil {
		return attemptResult{}, stopCause(ctx)
	}
	if !t.skipCounted { // once, however often it fails
		t.skipCounted = true
		p.notifyKnown(ctx, t, a)
	}
	t.handled, t.claim, t.kind = false, dedup.Claim{}, observe.SettledHandled // by us
	t.attempt = t.failures + 1
	var o outcome
	if t.tx == nil {
		o = p.timedRun(hard, t, nil)
	} else {
		var blocked bool
		var err error
		if o, blocked, err = p.shadowTx(hard, t); err != nil {
			return attemptResult{}, err
		}
		if blocked {
			return attemptResult{}, p.waitBusy(ctx, t, dedup.Answer{Verdict: dedup.Busy})
		}
	}
	p.judge(hard, t, o, false)
	return p.finish(ctx, hard, t, o, unrecorded{})
}

// shadowTx runs an event in a transaction without a claim. blocked is true if another worker holds
// a lock that the transaction needs (rule 10). After an error no handler ran.
func (p *Processor) shadowTx(hard context.Context, t *task) (o outcome, blocked bool, err error) {
	free, err := t.access.slot(hard, t.budget)
	if err != nil {
		return outcome{}, false, err
	}
	defer free()
	ran, began := false, time.Now()
	err = inTxTime(
		hard,
		func(ctx context.Context, abort context.CancelCauseFunc, run func(func()) error) error {
			return t.tx.RunTx(ctx, t.route.Timeout, func(tx any) error {
				if err := run(func() {
					ran = true
					late := time.AfterFunc(t.route.Timeout+txSlack, func() { abort(idemtype.ErrHandlerTimeout) })
					defer late.Stop()
					o = p.timedRun(ctx, t, tx)
				}); err != nil {
					return err
				}
				return o.err
			})
		},
	)
	t.access.called(hard, observe.VerbTransaction, 0, nil, began, err)
	switch {
	case err == nil:
		return o, false, nil
	case ran && o.meaning == succeeded && errors.Is(err, dedup.ErrContended):
		return outcome{}, true, nil
	}
	return txOutcome(hard, o, ran, err), false, nil
}
