package engine

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// This file is the shadow mode: the store is kept, and obeyed in nothing. A consumer that exists already runs in it until
// its store knows what lies in its topics, and until what it would skip is what its owners expect.

// shadow runs an event that would have been skipped, as if there were no store. Its failures meet the retry policy.
func (p *Processor) runIgnored(ctx, hard context.Context, t *task, a dedup.Answer) (attemptResult, error) {
	if ctx.Err() != nil {
		return attemptResult{}, stopCause(ctx)
	}
	if !t.skipCounted { // once, however often it fails
		t.skipCounted = true
		p.notifyKnown(ctx, t, a)
	}
	t.handled, t.claim, t.settlement = false, dedup.Claim{}, observe.SettledHandled // by us
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

// shadowTx runs an event in a transaction without a claim. blocked says that somebody else holds a lock that what was kept for the end
// of the transaction needs (rule 10). An error says that nothing was begun.
func (p *Processor) shadowTx(hard context.Context, t *task) (o outcome, blocked bool, err error) {
	free, err := t.access.slot(hard, t.budget)
	if err != nil {
		return outcome{}, false, err
	}
	defer free()
	ran, began := false, time.Now()
	err = inTxTime(hard, func(ctx context.Context, abort context.CancelCauseFunc, run func(func()) error) error {
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
	})
	t.access.called(hard, observe.VerbTransaction, 0, nil, began, err)
	switch {
	case err == nil:
		return o, false, nil
	case ran && o.meaning == succeeded && errors.Is(err, dedup.ErrContended):
		return outcome{}, true, nil
	}
	return txOutcome(hard, o, ran, err), false, nil
}
