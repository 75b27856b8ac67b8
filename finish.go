package idem

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/dedup"
)

// judge notes the outcome in the history of the event and decides the next step. unnamed says that the error is about a call of
// several events and names none of them.
func (p *Processor) judge(ctx context.Context, t *task, o outcome, unnamed bool) {
	answers := o.meaning == unavailable && !o.refused && p.probe(ctx, t)
	at := t.moment(time.Now(), unnamed)
	if !o.refused { // else its failures are in the history already
		t.attempts = t.attempts.note(o, t.route.retry, at.now, answers)
	}
	t.action = decide(o, &t.route.policy, &t.attempts, at)
}

func (t *task) moment(now time.Time, unnamed bool) moment {
	at := moment{
		now: now, draw: rand.Float64(), claimed: t.claimed, unnamed: unnamed,
		retry: uint64(t.request.Position.Retry), notBefore: t.notBefore(),
	}
	if c := t.message.copied; c != nil {
		at.topic = c.delay
	}
	return at
}

// recorder is how a backend records the end of an event and releases what the event holds.
type recorder interface {
	// record reports whether the event is settled. If it is not, and err is nil, the store is asked for the event again.
	record(ctx context.Context, d *task, c dedup.Completion) (settled bool, err error)
	// release gives the claim back, if there is one.
	release(ctx context.Context, d *task, as dedup.Outcome)
}

// finish carries out the action of a task. ctx ends with a stop; hard is the context of work that was begun. The order of the
// effects loses nothing: publish, record, settle (rule 6); and no claim is held during a pause.
func (p *Processor) finish(ctx, hard context.Context, t *task, o outcome, rec recorder) (step, error) {
	switch t.action.kind {
	case actComplete:
		settled, err := rec.record(hard, t, dedup.Completion{})
		t.handled, t.seen, t.end, t.settlement = settled, t.request.Origin, endDone, SettledHandled
		if settled {
			t.route.budget.Earn(1)
		}
		return step{settled: settled}, err
	case actDeadLetter:
		return p.giveUp(hard, t, o, rec)
	case actDelayedRetry:
		return p.reschedule(hard, t, o, rec)
	case actRetry:
		if t.claim.Key.ID == "" { // else the store counts
			t.failures++
		}
		p.notifyRetry(ctx, t, o)
		rec.release(ctx, t, t.action.release)
		return step{sleep: t.action.delay}, nil
	case actWait:
		rec.release(ctx, t, t.action.release)
		return step{outage: fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err)}, nil
	case actReclaim:
		if t.held == nil || t.held.Lost(t.heldAt) { // else the claim of another event of the call was lost
			p.notifyLost(ctx, t)
		}
		// A claim that is over is released too: if no worker has taken over, the next claim is no take-over.
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

// giveUp dead-letters an event.
func (p *Processor) giveUp(hard context.Context, t *task, o outcome, rec recorder) (step, error) {
	if err := p.publishDeadLetter(hard, t.budget, t.message, t.failure(o)); err != nil {
		rec.release(hard, t, t.action.release)
		return step{}, err
	}
	t.end, t.settlement = endDead, SettledDeadLetter
	settled, err := rec.record(hard, t, dedup.Completion{Dead: p.reason(o)})
	return step{settled: settled}, err
}

// reschedule leaves an event to a delayed retry. A copy that is too large for its topic is dead-lettered.
func (p *Processor) reschedule(hard context.Context, t *task, o outcome, rec recorder) (step, error) {
	err := p.publishCopy(hard, t, o)
	if errors.Is(err, ErrTooLarge) {
		return p.giveUp(hard, t, o, rec)
	}
	if err != nil {
		rec.release(hard, t, t.action.release)
		return step{}, err
	}
	t.end, t.settlement = endRescheduled, SettledRescheduled
	settled, err := rec.record(hard, t, dedup.Completion{Retry: t.request.Position.Retry + 1})
	return step{settled: settled}, err
}

// underClaim records ends under the claim of the event.
type underClaim struct {
	p           *Processor
	stopRenewal func()
	collect     *[]dedup.Release // if not nil, the caller releases all claims of a call together
}

func (u underClaim) record(ctx context.Context, t *task, c dedup.Completion) (bool, error) {
	lost, err := u.p.complete(ctx, t, c)
	return err == nil && !lost, err
}

func (u underClaim) release(ctx context.Context, t *task, as dedup.Outcome) {
	u.stopRenewal()
	r := dedup.Release{Claim: t.claim, Outcome: as, Retention: t.route.retention}
	if u.collect != nil {
		*u.collect = append(*u.collect, r)
		return
	}
	u.p.release(ctx, t.access, []dedup.Release{r})
}

// inOwnTx records ends in a transaction of its own, since that of the handler was rolled back.
type inOwnTx struct{ p *Processor }

func (i inOwnTx) record(ctx context.Context, t *task, c dedup.Completion) (bool, error) {
	return i.p.recordTx(ctx, t, c)
}

func (inOwnTx) release(context.Context, *task, dedup.Outcome) {}

// unrecorded is for events without a record in the store: of the fallback, and those that only shadow mode runs.
type unrecorded struct{}

func (unrecorded) record(context.Context, *task, dedup.Completion) (bool, error) { return true, nil }

func (unrecorded) release(context.Context, *task, dedup.Outcome) {}
