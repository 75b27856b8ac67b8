package idem

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file is the shadow mode: the store is kept, and obeyed in nothing. A consumer that exists already runs in it until
// its store knows what lies in its topics, and until what it would skip is what its owners expect.

// shadow runs an event that would have been skipped, as if there were no store. Its failures meet the retry policy.
func (p *Processor) shadow(ctx, hard context.Context, d *task, a dedup.Answer) (step, error) {
	if ctx.Err() != nil {
		return step{}, stopCause(ctx)
	}
	if !d.skipCounted { // once, however often it fails
		d.skipCounted = true
		p.notifyKnown(ctx, d, a)
	}
	d.handled, d.claim, d.settlement = false, dedup.Claim{}, SettledHandled // by us
	d.attempt = d.failures + 1
	var o outcome
	if d.tx == nil {
		o = p.timedRun(hard, d, nil)
	} else {
		var blocked bool
		var err error
		if o, blocked, err = p.shadowTx(hard, d); err != nil {
			return step{}, err
		}
		if blocked {
			return step{}, p.waitBusy(ctx, d, dedup.Answer{Verdict: dedup.Busy})
		}
	}
	p.judge(hard, d, o, false)
	return p.finish(ctx, hard, d, o, unrecorded{})
}

// shadowTx runs an event in a transaction without a claim. blocked says that somebody else holds a lock that what was kept for the end
// of the transaction needs (rule 10). An error says that nothing was begun.
func (p *Processor) shadowTx(hard context.Context, d *task) (o outcome, blocked bool, err error) {
	free, err := d.access.slot(hard, d.budget)
	if err != nil {
		return outcome{}, false, err
	}
	defer free()
	ran, began := false, time.Now()
	err = inTxTime(hard, d.route.timeout, func(ctx context.Context, run func(func()) error) error {
		return d.tx.runTx(ctx, d.route.timeout, func(tx any) error {
			if err := run(func() {
				ran = true
				o = p.timedRun(ctx, d, tx)
			}); err != nil {
				return err
			}
			return o.err
		})
	})
	p.storeCall(hard, d.access, VerbTransaction, 0, nil, began, err)
	switch {
	case err == nil:
		return o, false, nil
	case ran && o.meaning == succeeded && errors.Is(err, dedup.ErrContended):
		return outcome{}, true, nil
	}
	return txOutcome(hard, o, ran, err), false, nil
}

// checkShadow refuses what needs a store that is obeyed.
func (p *Processor) checkShadow(b *bound) error {
	switch {
	case !p.cfg.Shadow:
		return nil
	case b.mode != blocking:
		return errors.New("RetryTopics and KeyOrdered need a store that is obeyed: without them while Config.Shadow is set")
	case b.tx != nil && !b.tx.canRunTx():
		return fmt.Errorf("Config.Shadow needs a dedup.TxRunner, which %s is not", reflect.TypeOf(b.access.store))
	}
	return nil
}
