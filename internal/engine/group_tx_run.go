package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// This file runs the handlers of a transaction of many events.

// run makes the calls in a goroutine of its own, as [Processor.run] does for one call.
func (tg *txGroup) run(
	hard context.Context, abort context.CancelCauseFunc, tx any, fresh []*task,
) error {
	// The store may repeat the run: forget the results of the run before.
	tg.failed, tg.err, tg.outcome = -1, nil, outcome{}
	tg.calls = tg.group.calls(fresh)
	if len(tg.calls) == 0 {
		return nil
	}
	inputs := make([][]Input, len(tg.calls))
	all := make([]Input, 0, len(tg.group.tasks))
	for i, c := range tg.calls {
		n := len(all)
		for _, t := range c.tasks {
			all = append(all, t.input())
		}
		inputs[i] = all[n:len(all):len(all)]
	}
	ctx, cancel := context.WithCancelCause(hard)
	defer cancel(context.Canceled)
	tg.took = make([]time.Duration, len(tg.calls))
	tg.begin(0)
	_, tg.checked = tx.(dedup.TxChecker)
	done := make(chan error, 1)
	go tg.work(ctx, tx, inputs, done)
	tg.outcome = tg.wait(ctx, hard, cancel, abort, done)
	var failed *callError
	switch {
	case errors.As(tg.outcome.err, &failed):
		tg.failed, tg.err = failed.call, failed.err
		if tg.group.single { // a batch handler names its only event in a BatchError as well
			all := tg.outcome
			all.err = tg.err
			o := newOutcomes(ctx, all, tg.group.tasks)
			tg.outcome = o.of(tg.group.tasks[0])
			tg.err = tg.outcome.err
		}
	case tg.outcome.meaning != succeeded: // the handler still runs; only its current call is known
		tg.outcome.meaning = abandoned
		tg.failed = int(tg.current.Load())
		err := tg.outcome.err
		if !errors.Is(err, idemtype.ErrAbandoned) {
			err = fmt.Errorf("%w: %w", idemtype.ErrAbandoned, err)
		}
		if tg.group.single {
			return err
		}
		// The handler may have ended the transaction before it hung. Then claims must be taken
		// back.
		return &dedup.GroupError{Unrun: tg.unrun(), Err: err}
	}
	tg.noteRuns(ctx)
	tg.notifyHandled(ctx)
	switch {
	case tg.err == nil || tg.group.single:
		return tg.err
	case errors.Is(tg.err, dedup.ErrTxEnded):
		return &dedup.TxEndedError{Unrun: tg.unrun()}
	}
	return &dedup.GroupError{Unrun: tg.unrun(), Err: tg.err}
}

func (tg *txGroup) begin(i int) {
	tg.current.Store(int32(i))
	tg.deadline.Store(time.Now().Add(tg.calls[i].route.Timeout).UnixNano())
}

// wait returns the outcome of the calls. A call beyond its time-out has its context cancelled. If
// the handler ignores that, the transaction is aborted after txSlack. The abort ends hard, and
// overdue abandons the handler.
//
// A handler that returns nil after its time-out ends the group too. The next call finds the
// cancelled context, and the events of that call are isolated. No attempt counts.
func (tg *txGroup) wait(
	ctx, hard context.Context, cancel, abort context.CancelCauseFunc, done <-chan error,
) outcome {
	p := tg.group.batch.p
	shortest := tg.calls[0].route.Timeout // the next call may have less time than this one
	for i := range tg.calls {
		shortest = min(shortest, tg.calls[i].route.Timeout)
	}
	timer := time.NewTimer(shortest)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return classify(context.Cause(ctx), err)
		case <-ctx.Done():
			return p.overdue(ctx, hard, tg.currentTask(), done, noClaims)
		case <-timer.C:
		}
		if left := tg.timeLeft(); left > 0 { // the next call has begun meanwhile
			timer.Reset(min(left, shortest))
			continue
		}
		break
	}
	cancel(idemtype.ErrHandlerTimeout)
	late := time.AfterFunc(txSlack, func() { abort(idemtype.ErrHandlerTimeout) })
	defer late.Stop()
	return p.overdue(ctx, hard, tg.currentTask(), done, noClaims)
}

// timeLeft returns the time that the current call still has.
func (tg *txGroup) timeLeft() time.Duration { return time.Until(time.Unix(0, tg.deadline.Load())) }

// currentTask returns the first event of the current call.
func (tg *txGroup) currentTask() *task { return tg.calls[tg.current.Load()].tasks[0] }

// work makes the calls until one fails. The result that is sent to done is nil or a *callError.
func (tg *txGroup) work(ctx context.Context, tx any, inputs [][]Input, done chan<- error) {
	i, finished, p := 0, false, tg.group.batch.p
	var watched observedCall
	checker, _ := tx.(dedup.TxChecker)
	if tg.group.single { // the store finds an ended transaction at the commit
		checker = nil
	}
	defer func() {
		if !finished { // a panic, or runtime.Goexit
			err := userErr(panicked(recover()))
			watched.end(err)
			done <- &callError{i, txFault(checker, err)}
		}
	}()
	for ; i < len(tg.calls); i++ {
		if i > 0 {
			tg.begin(i)
		}
		began := time.Now()
		err := ctx.Err() // no handler starts in a cancelled transaction
		if err == nil {
			watched = p.observeCall(ctx, tg.calls[i].route, inputs[i])
			err = userErr(tg.calls[i].route.Call(watched.ctx, tx, inputs[i]))
			watched.end(err)
		}
		tg.took[i] = time.Since(began)
		if named := namedIn(err, len(inputs[i])); named != nil && len(named) == 0 {
			err = nil // an empty BatchError is a success
		}
		if err := txFault(checker, err); err != nil {
			finished = true
			done <- &callError{i, err}
			return
		}
	}
	finished = true
	done <- nil
}

// txFault returns the error of the last call, together with the state of the transaction. A
// database error that the handler ignored belongs to this call, not to the next one (rule 12). The
// end of the transaction has precedence, also over a panic, because claims must be taken back.
func txFault(checker dedup.TxChecker, err error) error {
	if checker == nil {
		return err
	}
	if state := checker.CheckTx(); state != nil &&
		(err == nil || errors.Is(state, dedup.ErrTxEnded)) {
		return state
	}
	return err
}

// noteRuns notes the outcomes of the calls for the breakers of their handlers.
func (tg *txGroup) noteRuns(ctx context.Context) {
	for i := range tg.calls {
		c := &tg.calls[i]
		var o outcomes
		switch {
		case c.route.breaker == nil:
			continue
		case tg.failed >= 0 && i > tg.failed:
			return
		case i == tg.failed:
			all := tg.outcome
			all.err = tg.err
			o = newOutcomes(ctx, all, c.tasks)
		}
		tg.group.batch.p.noteRun(ctx, c.route, &o, c.tasks)
	}
}

// notifyHandled reports the events of all calls to observers.
func (tg *txGroup) notifyHandled(ctx context.Context) {
	p := tg.group.batch.p
	if len(p.obs.Handled) == 0 {
		return
	}
	for i, c := range tg.calls {
		var err error
		if tg.failed >= 0 && i >= tg.failed {
			if i > tg.failed {
				return
			}
			err = tg.err
		}
		for _, t := range c.tasks {
			p.notifyHandled(ctx, t, tg.took[i], err)
		}
	}
}

// unrun returns the requests whose claims must not stay if the transaction was ended by SQL. These
// are the calls behind the one that failed: that call ended the transaction. If it does not tell
// its state, an earlier call may have ended it. Then the call that failed has no transaction either.
func (tg *txGroup) unrun() (indices []int) {
	from := tg.failed
	if tg.checked || from == 0 {
		from++
	}
	left := make(map[*task]bool)
	for _, c := range tg.calls[from:] {
		for _, t := range c.tasks {
			left[t] = true
		}
	}
	for i, t := range tg.group.sorted {
		if left[t] {
			indices = append(indices, i)
		}
	}
	return indices
}
