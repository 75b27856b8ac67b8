package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// judge adds the outcome to the history of the event and decides the next step. unnamed is true if
// the error belongs to a call of several events and names none of them.
func (p *Processor) judge(ctx context.Context, t *task, o outcome, unnamed bool) {
	answers := o.meaning == unavailable && !o.refused && p.probe(ctx, t)
	at := t.moment(time.Now(), unnamed)
	if !o.refused { // the history of a refused run is complete
		t.attempts = t.attempts.note(o, t.route.Retry, at.now, answers)
	}
	t.action = decide(o, &t.route.Policy, &t.attempts, at)
}

func (t *task) moment(now time.Time, unnamed bool) moment {
	at := moment{
		now: now, draw: rand.Float64(), claimed: t.claimed, unnamed: unnamed,
		retry: uint64(t.request.Position.Retry), notBefore: t.notBefore(),
	}
	if c := t.copied; c != nil {
		at.topic = c.delay
	}
	return at
}

// recorder records the end of an event and releases its claim. The implementations differ by
// backend.
type recorder interface {
	// record reports whether the event is settled. If settled is false and err is nil, the event is
	// claimed again.
	record(ctx context.Context, d *task, c dedup.Completion) (settled bool, err error)
	// release gives the claim back, if the event has one.
	release(ctx context.Context, d *task, as dedup.Outcome)
}

// finish carries out the action of a task. ctx ends when the worker stops. hard is the context of
// work that has begun; it ends after the grace period. The order is publish, record, settle, so
// that a crash loses no event (rule 6). No claim is held during a pause.
func (p *Processor) finish(
	ctx, hard context.Context, t *task, o outcome, rec recorder,
) (step, error) {
	switch t.action.kind {
	case actComplete:
		settled, err := rec.record(hard, t, dedup.Completion{})
		t.handled, t.seen, t.end, t.settlement = settled, t.request.Origin, endDone, observe.SettledHandled
		if settled {
			t.route.budget.Earn(1)
		}
		return step{settled: settled}, err
	case actDeadLetter:
		return p.giveUp(hard, t, o, rec)
	case actDelayedRetry:
		return p.reschedule(hard, t, o, rec)
	case actRetry:
		if t.claim.Key.ID == "" { // no claim: else the store counts the failures
			t.failures++
		}
		p.notifyRetry(ctx, t, o)
		rec.release(ctx, t, t.action.release)
		return step{sleep: t.action.delay}, nil
	case actWait:
		rec.release(ctx, t, t.action.release)
		return step{outage: fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err)}, nil
	case actReclaim:
		// The call may have lost the claim of another event.
		if t.held == nil || t.held.Lost(t.heldAt) {
			p.notifyLost(ctx, t)
		}
		// Release even a claim that has ended. If no other worker has claimed the event since, its
		// next claim is no takeover.
		rec.release(ctx, t, t.action.release)
		return step{sleep: jitter(50 * time.Millisecond)}, nil
	case actIsolate:
		rec.release(ctx, t, t.action.release)
		return step{}, nil
	case actGiveBack:
	}
	rec.release(ctx, t, t.action.release)
	return step{}, interrupted(ctx, t, o)
}

// giveUp dead-letters an event and records that.
func (p *Processor) giveUp(hard context.Context, t *task, o outcome, rec recorder) (step, error) {
	if err := p.publishDeadLetter(hard, t.budget, p.failure(t, o)); err != nil {
		rec.release(hard, t, t.action.release)
		return step{}, err
	}
	t.end, t.settlement = endDead, observe.SettledDeadLetter
	settled, err := rec.record(hard, t, dedup.Completion{Dead: p.reason(o)})
	return step{settled: settled}, err
}

// reschedule publishes or defers the next attempt and records that. An event whose copy is too
// large is dead-lettered.
func (p *Processor) reschedule(
	hard context.Context, t *task, o outcome, rec recorder,
) (step, error) {
	err := p.publishCopy(hard, t, o)
	if errors.Is(err, idemtype.ErrTooLarge) {
		return p.giveUp(hard, t, o, rec)
	}
	if err != nil {
		rec.release(hard, t, t.action.release)
		return step{}, err
	}
	t.end, t.settlement = endRescheduled, observe.SettledRescheduled
	settled, err := rec.record(hard, t, dedup.Completion{Retry: t.request.Position.Retry + 1})
	return step{settled: settled}, err
}

// underClaim records ends under the claim of the event.
type underClaim struct {
	p           *Processor
	stopRenewal func()
	collect     *[]dedup.Release // if not nil, the caller releases these claims together
}

func (u underClaim) record(ctx context.Context, t *task, c dedup.Completion) (bool, error) {
	lost, err := u.p.complete(ctx, t, c)
	return err == nil && !lost, err
}

func (u underClaim) release(ctx context.Context, t *task, as dedup.Outcome) {
	u.stopRenewal()
	r := dedup.Release{Claim: t.claim, Outcome: as, Retention: t.route.Retention}
	if u.collect != nil {
		*u.collect = append(*u.collect, r)
		return
	}
	u.p.release(ctx, t.access, []dedup.Release{r})
}

// inOwnTx records ends in a new transaction, because the transaction of the handler was rolled
// back.
type inOwnTx struct{ p *Processor }

func (i inOwnTx) record(ctx context.Context, t *task, c dedup.Completion) (bool, error) {
	return i.p.recordTx(ctx, t, c)
}

func (inOwnTx) release(context.Context, *task, dedup.Outcome) {}

// unrecorded is the recorder of events without a record in the store: those of NotFound, and
// duplicates in shadow mode.
type unrecorded struct{}

func (unrecorded) record(
	context.Context, *task, dedup.Completion,
) (bool, error) {
	return true, nil
}

func (unrecorded) release(context.Context, *task, dedup.Outcome) {}
