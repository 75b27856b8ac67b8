package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// txSlack is how much longer than its handler a transaction may take: to begin, to wait for a copy, to commit.
const txSlack = 10 * time.Second

// refuseBeforeTx ends an event that must not run: its copy came before its time, or cannot be read. done is false if it may run.
func (g *eventGroup) refuseBeforeTx() (done bool, err error) {
	t, p := g.tasks[0], g.batch.p
	t.answer = dedup.Answer{}
	t.decision = decision{outcome: refuse(t.answer, &t.route.Policy, &t.attempts, t.facts(t.answer))}
	o := t.refused()
	if !o.refused {
		return false, nil
	}
	t.permit.End(false)
	var s step
	if o.meaning == permanent {
		s, err = p.giveUpUnreadable(g.ctx, t, o)
	} else {
		s, err = p.finishRefused(g.ctx, t, o)
	}
	t.settled, t.pending = s.settled, s
	return true, err
}

// countStart counts the start of the only event of the group while the crash guard watches its partition. An event that was started too
// often without an end is given up: done is true then, and after an error of the store.
func (tg *txGroup) countStart(ctx context.Context, free func()) (done bool, err error) {
	t, p := tg.group.tasks[0], tg.group.batch.p
	watched, crashed, err := p.countStart(ctx, t)
	if err != nil {
		t.pending = step{outage: err}
		return true, nil //nolint:nilerr // it is waited for
	}
	tg.watched = watched
	if crashed == nil {
		return false, nil
	}
	free()
	s, err := p.finishRefused(ctx, t, outcome{meaning: unknown, class: idemtype.ClassCrashLoop, err: crashed, refused: true})
	if s.settled { // not before: an event that kills processes must not run again because its dead letter could not be sent
		p.clearStarts(ctx, t)
	}
	t.settled, t.pending = s.settled, s
	return true, err
}

// settleSingle settles the only event of the group after its transaction, which err has rolled back if it is not nil.
func (tg *txGroup) settleSingle(ctx, hard context.Context, err error) error {
	g, p := tg.group, tg.group.batch.p
	t := g.tasks[0]
	g.failure, t.began = err, tg.began
	o := tg.outcome
	if tg.watched && o.meaning != abandoned {
		p.clearStarts(ctx, t)
	}
	var s step
	switch {
	case err != nil:
		if !tg.ran {
			t.permit.End(false)
		}
		s, err = p.finishTx(ctx, t, txOutcome(hard, o, tg.ran, err), tg.ran)
	case t.answer.Verdict == dedup.Fresh: // it ran
		g.access.up(ctx, p, tg.began)
		p.noteEnd(t.message)
		t.limit().Grow(1, t.route.MaxBatch)
		t.handled, t.seen, t.end, t.settlement = true, t.request.Origin, endDone, observe.SettledHandled
		t.route.budget.Earn(1)
		s = step{settled: true}
	case t.decision.step == stepRunIgnored:
		g.access.up(ctx, p, tg.began)
		s, err = p.shadow(ctx, hard, t, t.answer)
	default:
		g.access.up(ctx, p, tg.began)
		s, err = p.settleAnswer(ctx, t, t.answer, t.decision)
	}
	t.settled, t.pending = s.settled, s
	return err
}

// inTxTime calls a store that calls a handler in a transaction, perhaps more than once. The store has
// txSlack before each run of the handler, and as much after the last. run carries out one run, which
// limits its own time; abort ends the whole transaction.
func inTxTime(hard context.Context, call func(ctx context.Context, abort context.CancelCauseFunc, run func(func()) error) error) error {
	ctx, cancel := context.WithCancelCause(hard)
	defer cancel(context.Canceled)
	slow := time.AfterFunc(txSlack, func() { cancel(errSlow) })
	defer func() { slow.Stop() }()
	err := call(ctx, cancel, func(fn func()) error {
		slow.Stop()
		if cause := context.Cause(ctx); cause != nil { // the store calls although its time is over
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

// claimTx asks the store for this event alone.
func (t *task) claimTx(ctx context.Context, limit time.Duration, fn func(tx any) ([]dedup.Completion, error)) (dedup.Answer, error) {
	var answers [1]dedup.Answer
	err := t.tx.ClaimTx(ctx, limit, []dedup.Request{t.request}, answers[:], fn)
	return answers[0], err
}

// txOutcome is what a failed transaction means. The store knows its database and has the last word on whether that
// is to blame; a commit whose outcome is unknown is asked about by claiming again (P-11).
func txOutcome(hard context.Context, o outcome, ran bool, err error) outcome {
	switch {
	case o.meaning == abandoned && hard.Err() == nil: // nobody stops us: it ignored its time-out, and its connection was cut
		return outcome{meaning: unknown, class: idemtype.ClassTimeout, err: err}
	case o.meaning == abandoned:
		return o
	case ran && o.meaning == permanent:
		return o
	case hard.Err() != nil:
		return outcome{meaning: stopped, err: err}
	case errors.Is(err, dedup.ErrUnavailable):
		return outcome{meaning: unavailable, class: idemtype.ClassFailed, err: err}
	case !ran: // no answer, for whatever reason: the event is not to blame
		return outcome{meaning: unavailable, class: idemtype.ClassFailed, err: err}
	case o.meaning == succeeded: // refused by the commit
		return outcome{meaning: transient, class: idemtype.ClassFailed, err: err}
	}
	o.err = err
	return o
}

// finishTx does what was decided about a transaction that was rolled back.
func (p *Processor) finishTx(ctx context.Context, t *task, o outcome, ran bool) (step, error) {
	if errors.Is(o.err, dedup.ErrTxEnded) { // by COMMIT it is done when it comes again, and nobody hears of it any more (P-13)
		p.log.ErrorContext(ctx, "handler ended the transaction it was given, or tried to: what it had kept for the end of it is not written",
			append(p.taskAttrs(t), "error", p.errorText(o.err))...)
	}
	if o.meaning == unavailable && !ran {
		if errors.Is(o.err, errSlow) || !errors.Is(o.err, context.Canceled) {
			t.access.down(ctx, p, t.began, o.err)
		}
		return step{outage: fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err)}, nil
	}
	p.judge(ctx, t, o, false)
	if t.action.kind == actWait && errors.Is(o.err, dedup.ErrUnavailable) {
		t.access.down(ctx, p, t.began, o.err)
	}
	return p.finish(ctx, ctx, t, o, inOwnTx{p})
}

// finishRefused ends an event that is not to run, or leaves it to a delayed retry.
func (p *Processor) finishRefused(ctx context.Context, t *task, o outcome) (step, error) {
	p.judge(ctx, t, o, false)
	return p.finish(ctx, ctx, t, o, inOwnTx{p})
}

// recordTx records the end of an event that was published elsewhere, until the store answers. If the store knows another end, that
// stands: an event that was handled or moved on meanwhile is not dead, and blocks no queue (rule 4).
func (p *Processor) recordTx(ctx context.Context, t *task, c dedup.Completion) (settled bool, err error) {
	c.Claim, c.Retention = t.request.Held(dedup.Token{}, dedup.Answer{First: t.request.Origin}), t.route.Retention
	var a dedup.Answer
	err = p.insist(ctx, t.budget, &t.access.health, "published, not yet recorded", func() (bool, error) {
		began := time.Now()
		err := p.bounded(context.WithoutCancel(ctx), txSlack, func(ctx context.Context) (err error) {
			a, err = t.claimTx(ctx, txSlack, func(any) ([]dedup.Completion, error) { return []dedup.Completion{c}, nil })
			if err == nil && a.Verdict == dedup.Busy {
				err = idemtype.ErrBusy
			}
			return err
		})
		p.storeCall(ctx, t.access, observe.VerbTransaction, 1, nil, began, err)
		return false, err
	})
	if err != nil {
		return false, err
	}
	switch a.Verdict {
	case dedup.Done:
		t.end = endDone
	case dedup.Rescheduled:
		t.end = endRescheduled
	default: // recorded, or dead already; a copy in conflict, or too old, has its dead letter
	}
	return true, nil
}

// countStart records, for the first events of a partition after it was assigned, that a run begins: a transaction
// that dies with its process leaves no trace of its own (rule 18).
func (p *Processor) countStart(ctx context.Context, t *task) (watched bool, crashed, err error) {
	counter := t.access.counter
	if counter == nil || !p.guarded(t.message) {
		return false, nil, nil
	}
	var starts uint32
	began := time.Now()
	err = p.bounded(ctx, p.cfg.Lease, func(ctx context.Context) (err error) {
		starts, err = counter.CountStart(ctx, t.request.Key, t.request.Origin)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			t.access.down(ctx, p, began, err)
		}
		return false, nil, fmt.Errorf("%w: count start: %w", dedup.ErrUnavailable, err)
	}
	if starts > maxStarts {
		t.attempt = t.failures + int(starts) - 1
		return false, fmt.Errorf("%d runs were begun and none came to an end", starts-1), nil
	}
	return starts > 0, nil, nil
}

// clearStarts forgets the starts of an event whose run ended. A failure to do so is made good by the next end.
func (p *Processor) clearStarts(ctx context.Context, t *task) {
	counter := t.access.counter
	if counter == nil {
		return
	}
	_ = p.bounded(context.WithoutCancel(ctx), abandonAfter, func(ctx context.Context) error {
		return counter.ClearStarts(ctx, t.request.Key, t.request.Origin)
	})
}
