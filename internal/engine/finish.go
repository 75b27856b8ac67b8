package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/observe"
)

// judge adds the outcome to the history of the event and decides the next step. unnamed is true if
// a call of several events failed with an error that does not name this event.
func (p *Processor) judge(ctx context.Context, t *task, o outcome, unnamed bool) {
	answers := o.meaning == unavailable && !o.refused && t.access.reachable(ctx) &&
		readerAnswers(ctx, o)
	at := t.moment(time.Now(), unnamed)
	t.excludePause(at.now)
	if !o.refused { // the history of a refused run is complete
		t.attempts = t.attempts.note(o, t.route.Retry, at.now, answers)
	}
	t.action = decide(o, &t.route.Policy, &t.attempts, at)
}

// finish carries out the action of a task. ctx ends when the worker stops. The context hard of work
// that has begun ends after the grace period. The order is publish, record, settle, so that a crash
// loses no event (rule 6). No claim is held during a pause.
func (p *Processor) finish(
	ctx, hard context.Context, t *task, o outcome, rec recorder,
) (attemptResult, error) {
	switch t.action.kind {
	case actComplete:
		settled, err := rec.record(hard, t, dedup.Completion{})
		if settled {
			t.settlement = t.handledHere()
			t.route.budget.Earn(1)
		}
		return attemptResult{settled: settled}, err
	case actDeadLetter:
		return p.giveUp(hard, t, o, rec)
	case actDelayedRetry:
		return p.reschedule(hard, t, o, rec)
	case actRetry:
		if t.claim.Key.ID == "" { // for a claim the store counts the failures
			t.failures++
		}
		p.notifyRetry(ctx, t, o)
		rec.release(ctx, t, t.action.release)
		return attemptResult{notBefore: time.Now().Add(t.action.delay)}, nil
	case actWait:
		rec.release(ctx, t, t.action.release)
		return attemptResult{outage: fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err)}, nil
	case actReclaim:
		// The call may have lost the claim of another event.
		if t.held == nil || t.held.Lost(t.heldAt) {
			p.notifyLost(ctx, t)
		}
		// Release even a claim that has ended. If no other worker has claimed the event since, the
		// next claim of the event is no takeover.
		rec.release(ctx, t, t.action.release)
		return attemptResult{notBefore: time.Now().Add(jitter(50 * time.Millisecond))}, nil
	case actIsolate:
		t.restUntil = time.Now().Add(t.action.delay)
		rec.release(ctx, t, t.action.release)
		return attemptResult{}, nil
	case actGiveBack:
	}
	rec.release(ctx, t, t.action.release)
	return attemptResult{}, interrupted(ctx, t, o)
}

// giveUp dead-letters an event and records that.
func (p *Processor) giveUp(
	hard context.Context, t *task, o outcome, rec recorder,
) (attemptResult, error) {
	if err := p.publishDeadLetter(hard, t.budget, p.failure(t, o)); err != nil {
		rec.release(hard, t, t.action.release)
		return attemptResult{}, err
	}
	t.ending, t.kind = endDead, observe.SettledDeadLetter
	settled, err := rec.record(hard, t, dedup.Completion{Dead: p.reason(o)})
	return attemptResult{settled: settled}, err
}

// reschedule publishes or defers the next attempt and records that. If the copy is too large, the
// event is dead-lettered.
func (p *Processor) reschedule(
	hard context.Context, t *task, o outcome, rec recorder,
) (attemptResult, error) {
	err := p.publishCopy(hard, t, o)
	if errors.Is(err, idemtype.ErrTooLarge) {
		return p.giveUp(hard, t, o, rec)
	}
	if err != nil {
		rec.release(hard, t, t.action.release)
		return attemptResult{}, err
	}
	t.ending, t.kind = endRescheduled, observe.SettledRescheduled
	settled, err := rec.record(hard, t, dedup.Completion{Retry: t.request.Position.Retry + 1})
	return attemptResult{settled: settled}, err
}

func (p *Processor) reason(o outcome) string {
	class := string(o.class) + ": "
	// The text of a permanent error begins with its class.
	return safetext.Cut(class+strings.TrimPrefix(p.errorText(o.err), class), dedup.MaxReason)
}

// interrupted returns the error for an event with an interrupted run.
func interrupted(ctx context.Context, t *task, o outcome) error {
	if cause := stopCause(ctx); ctx.Err() != nil {
		return fmt.Errorf("event %s: %w: %w", t.request.Key, cause, o.err)
	}
	return fmt.Errorf("event %s: %w", t.request.Key, o.err)
}

// finishRefused ends an event that must not run, or schedules a delayed retry.
func (p *Processor) finishRefused(ctx context.Context, t *task, o outcome) (attemptResult, error) {
	p.judge(ctx, t, o, false)
	return p.finish(ctx, ctx, t, o, inOwnTx{p})
}
