package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
)

func (t *task) input() Input {
	data := t.data
	if t.dataUsed { // by a run that may have changed it, or is still at it
		data = t.again()
	}
	t.dataUsed = true
	return Input{
		Key: t.request.Key, Name: t.route.Name, Fence: t.claim.Fence,
		ID: t.id, Attempt: t.attempt, Uncertain: t.uncertain, Message: t.message, Payload: data,
	}
}

// again decodes once more what was decoded before. Should that fail now, what is there must do.
func (t *task) again() any {
	data := t.data
	_ = guard(func() error {
		fresh, err := t.route.Decode(t.message)
		if err == nil {
			data = fresh
		}
		return err
	})
	return data
}

// excludeWait takes time that was spent waiting for others off the time that retries may take: an outage costs no event
// anything.
func (t *task) excludeWait(waited time.Duration) {
	if !t.blockedSince.IsZero() {
		t.blockedSince = t.blockedSince.Add(waited)
	}
}

// step is the result of one attempt.
type step struct {
	settled bool
	sleep   time.Duration // pause before the next attempt, within the retry policy
	outage  error         // before the next attempt, wait until this outage is over
}

// settleSingle takes the only event of the group through its attempts until it is settled. An error says that it is not settled and
// must come again.
func (g *eventGroup) settleSingle() error {
	t, ctx, p := g.tasks[0], g.ctx, g.batch.p
	again := t.request.Position.Retry > 0
	for outages := 1; ; again = false {
		var err error
		switch s := t.pending; {
		case s.outage != nil:
			err = p.waitOut(ctx, t, outages, s.outage)
			outages++
		case s.sleep > 0:
			err = sleep(ctx, s.sleep)
			again = true
		}
		t.pending = step{}
		if err == nil && again && !t.retryPaid {
			err = p.afford(ctx, t)
		}
		if err != nil {
			return err
		}
		if t.permit, err = t.route.limits.Acquire(ctx, t.budget); err != nil {
			return err
		}
		func() {
			defer func() { t.permit.End(true) }() // also if an observer panics
			err = g.observed(g.attempt)
		}()
		if err != nil || t.settled {
			return err
		}
	}
}

// attempt is one attempt of a group: claim, run, record.
func (g *eventGroup) attempt() error {
	if g.tx != nil {
		return g.runInTx()
	}
	return g.runClaimed()
}

// errLapsed is the reason for a wait after a lease that was over before anything began under it.
var errLapsed = fmt.Errorf("%w: a lease was over before its handler began", dedup.ErrUnavailable)

// decodeLate decodes the data of an event whose time came while the store was asked. The outcome is marked as refused if that fails.
func (t *task) decodeLate() outcome {
	if t.data != nil {
		return outcome{}
	}
	err := t.decode()
	if err == nil {
		return outcome{}
	}
	o := readingOutcome(err)
	o.refused = true
	return o
}

// refused returns the outcome for an event that must not run although its claim is granted. It is marked as refused if so.
func (t *task) refused() outcome {
	o := t.decision.outcome
	if !o.refused {
		o = t.decodeLate()
	}
	if o.refused {
		t.attempt = t.begunRuns(t.answer, o)
	}
	return o
}

// begunRuns is how many runs of a refused event have begun, as far as is known. The run that was cut short counts, and so does a reading
// that failed.
func (t *task) begunRuns(a dedup.Answer, o outcome) int {
	known := max(int(a.Failures), t.earlier, t.failures)
	switch {
	case o.class == idemtype.ClassUncertain, o.unbegun:
		return known + 1
	case o.class == idemtype.ClassCrashLoop:
		return known + int(a.Takeovers)
	}
	return known
}

// interrupted is the error for an event whose run was cut short.
func interrupted(ctx context.Context, t *task, o outcome) error {
	if cause := stopCause(ctx); ctx.Err() != nil {
		return fmt.Errorf("event %s: %w: %w", t.request.Key, cause, o.err)
	}
	return fmt.Errorf("event %s: %w", t.request.Key, o.err)
}

// failure returns the event with its last error.
func (p *Processor) failure(t *task, o outcome) failure {
	now := time.Now()
	if t.firstFailure.IsZero() {
		t.firstFailure, t.lastFailure = now, now
	}
	return failure{err: o.err, Event: deadletter.Event{
		Key: t.request.Key, Group: p.cfg.Group, Message: t.message, Class: o.class, Error: p.errorText(o.err),
		Attempts: t.attempt, FirstFailure: t.firstFailure, LastFailure: t.lastFailure,
		Position: dedup.Position{Generation: t.request.Position.Generation},
	}}
}

func (p *Processor) reason(o outcome) string {
	class := string(o.class) + ": "
	return safetext.Cut(class+strings.TrimPrefix(p.errorText(o.err), class), dedup.MaxReason) // a permanent error says so itself
}
