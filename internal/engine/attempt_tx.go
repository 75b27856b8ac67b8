package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// refuseBeforeTx ends an event that must not run: a copy that came too early, or an unreadable
// event. done is false if the event may run.
func (g *eventGroup) refuseBeforeTx() (done bool, err error) {
	t, p := g.tasks[0], g.batch.p
	t.answer = dedup.Answer{}
	t.decision = decision{
		outcome: refuse(t.answer, &t.route.Policy, &t.attempts, t.facts(t.answer)),
	}
	o := t.decision.outcome
	if !o.refused {
		return false, nil
	}
	t.attempt = t.begunRuns(t.answer, o)
	t.endTurn(false)
	var s attemptResult
	if o.meaning == permanent {
		s, err = p.giveUpUnreadable(g.ctx, t, o)
	} else {
		s, err = p.finishRefused(g.ctx, t, o)
	}
	t.settled, t.pending = s.settled, s
	return true, err
}

// countStart counts the start of the only event of the group while the crash guard watches the
// partition. An event with too many starts and no end is given up. done is true for such an event,
// and after an error of the store.
func (tg *txGroup) countStart(ctx context.Context, free func()) (done bool, err error) {
	t, p := tg.group.tasks[0], tg.group.batch.p
	starts, crashed, err := p.countStart(ctx, t)
	if err != nil {
		t.pending = attemptResult{outage: err}
		return true, nil //nolint:nilerr // the caller waits for the store
	}
	tg.starts = starts
	if crashed == nil {
		return false, nil
	}
	free()
	t.endTurn(false)
	s, err := p.finishRefused(
		ctx, t,
		outcome{meaning: unknown, class: idemtype.ClassCrashLoop, err: crashed, refused: true},
	)
	// Without a dead letter the starts stay: an event that kills processes must not run again.
	if s.settled {
		p.clearStarts(ctx, t)
	}
	t.settled, t.pending = s.settled, s
	return true, err
}

// settleSingle settles the only event of the group after the transaction. err is the reason for a
// rollback, or nil.
func (tg *txGroup) settleSingle(ctx, hard context.Context, err error) error {
	g, p := tg.group, tg.group.batch.p
	t := g.tasks[0]
	g.failure, t.began = err, tg.began
	o := tg.outcome
	if tg.starts > 0 {
		if tg.ran && o.meaning != abandoned {
			p.clearStarts(ctx, t)
		} else if !tg.ran {
			defer func() { tg.endUnrun(ctx) }()
		}
	}
	var s attemptResult
	switch {
	case tg.unread.refused:
		g.access.succeeded(ctx, tg.began, callAsk)
		t.endTurn(false)
		if t.destination == destReread {
			return nil
		}
		t.attempt = t.begunRuns(t.answer, tg.unread)
		s, err = p.finishRefused(ctx, t, tg.unread)
	case err != nil:
		if tg.ran {
			t.busy = busy{}
		} else {
			t.permit.End(false)
		}
		s, err = p.finishTx(ctx, t, txOutcome(hard, o, tg.ran, err), tg.ran)
	case t.answer.Verdict == dedup.Fresh: // the handler ran
		g.access.up(ctx, tg.began)
		p.noteEnd(t.message)
		t.limit().Grow(1, t.route.MaxBatch)
		t.settlement = t.handledHere()
		t.route.budget.Earn(1)
		s = attemptResult{settled: true}
	case t.decision.step == stepRunIgnored:
		g.access.succeeded(ctx, tg.began, callAsk)
		s, err = p.runIgnored(ctx, hard, t, t.answer)
	default:
		g.access.succeeded(ctx, tg.began, callAsk)
		s, err = p.settleAnswer(ctx, t, t.answer, t.decision)
	}
	t.settled, t.pending = s.settled, s
	return err
}

// endUnrun ends a counted start without a run. Only the end of the event forgets earlier starts.
func (tg *txGroup) endUnrun(ctx context.Context) {
	t, p := tg.group.tasks[0], tg.group.batch.p
	if t.settled {
		p.clearStarts(ctx, t)
		return
	}
	p.takeBackStart(ctx, t, tg.starts)
}

// finishTx decides about an event after the rollback of its transaction, and carries the decision
// out.
func (p *Processor) finishTx(
	ctx context.Context, t *task, o outcome, ran bool,
) (attemptResult, error) {
	// After a COMMIT by the handler, the next claim finds the event done (P-13).
	if errors.Is(o.err, dedup.ErrTxEnded) {
		p.log.ErrorContext(ctx,
			"handler ended its transaction, or tried to: work that it kept for the end is not written",
			append(taskAttrs(t), "error", p.errorText(o.err))...)
	}
	if o.meaning == unavailable && !ran {
		if errors.Is(o.err, errSlow) || !errors.Is(o.err, context.Canceled) {
			t.access.down(ctx, t.began, o.err)
		}
		return attemptResult{outage: fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err)}, nil
	}
	p.judge(ctx, t, o, false)
	if t.action.kind == actWait && errors.Is(o.err, dedup.ErrUnavailable) {
		t.access.down(ctx, t.began, o.err)
	}
	return p.finish(ctx, ctx, t, o, inOwnTx{p})
}
