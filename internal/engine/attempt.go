package engine

import (
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// settleSingle repeats attempts until the only event of the group is settled. After an error the
// event is not settled and must come again.
func (g *eventGroup) settleSingle() error {
	t, ctx := g.tasks[0], g.ctx
	again := t.request.Position.Retry > 0
	for outages := 1; ; again = false {
		var err error
		switch s := t.pending; {
		case s.outage != nil:
			err = t.waitOut(ctx, outages, s.outage)
			outages++
		case s.sleep > 0:
			err = sleep(ctx, s.sleep)
			again = true
		}
		t.pending = attemptResult{}
		if err == nil && again && !t.retryPaid {
			err = t.afford(ctx)
		}
		if err != nil {
			return err
		}
		if t.permit, err = t.route.limits.Acquire(ctx, t.budget); err != nil {
			return err
		}
		func() {
			defer func() { t.permit.End(true) }() // also if an observer panics
			err = g.observed(g.runOnce)
		}()
		if err != nil || t.settled {
			return err
		}
	}
}

// attempt is one attempt of a group: claim, run, record.
func (g *eventGroup) runOnce() error {
	if g.tx != nil {
		return g.runInTx()
	}
	return g.runClaimed()
}

// errLapsed is the reason for a wait after a lease that was over before anything began under it.
var errLapsed = fmt.Errorf("%w: a lease was over before its handler began", dedup.ErrUnavailable)

// refusedOutcome returns the outcome of an event that must not run although the claim is granted.
// outcome.refused is false if the event may run.
func (t *task) refusedOutcome() outcome {
	o := t.decision.outcome
	if !o.refused {
		o = t.decodeLate()
	}
	if o.refused {
		t.attempt = t.begunRuns(t.answer, o)
	}
	return o
}

// begunRuns returns the known number of begun runs of a refused event. A run that was cut short
// counts, and so does a failed reading.
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
