package idem

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

func (d *task) input() input {
	data := d.data
	if d.dataUsed { // by a run that may have changed it, or is still at it
		data = d.again()
	}
	d.dataUsed = true
	return input{
		meta: meta{key: d.request.Key, name: d.route.name, fence: d.claim.Fence},
		id:   d.id, attempt: d.attempt, uncertain: d.uncertain, message: d.message, payload: data,
	}
}

// again decodes once more what was decoded before. Should that fail now, what is there must do.
func (d *task) again() any {
	data := d.data
	_ = guard(func() error {
		fresh, err := d.route.decode(d.message)
		if err == nil {
			data = fresh
		}
		return err
	})
	return data
}

// excludeWait takes time that was spent waiting for others off the time that retries may take: an outage costs no event
// anything.
func (d *task) excludeWait(waited time.Duration) {
	if !d.blockedSince.IsZero() {
		d.blockedSince = d.blockedSince.Add(waited)
	}
}

// step is what a trip through the gate came to.
type step struct {
	settled bool
	sleep   time.Duration // before the next trip, within the retry policy
	outage  error         // before the next trip, wait for what is down
}

// settleSingle takes the only event of the group through its attempts until it is settled. An error says that it is not settled and
// must come again.
func (r *eventGroup) settleSingle() error {
	e, ctx, p := r.tasks[0], r.ctx, r.batch.p
	again := e.request.Position.Retry > 0
	for outages := 1; ; again = false {
		var err error
		switch s := e.pending; {
		case s.outage != nil:
			err = p.waitOut(ctx, e, outages, s.outage)
			outages++
		case s.sleep > 0:
			err = sleep(ctx, s.sleep)
			again = true
		}
		e.pending = step{}
		if err == nil && again && !e.retryPaid {
			err = p.afford(ctx, e)
		}
		if err != nil {
			return err
		}
		if e.permit, err = e.route.limits.Acquire(ctx, e.budget); err != nil {
			return err
		}
		func() {
			defer func() { e.permit.End(true) }() // also if an observer panics
			err = r.observed(r.attempt)
		}()
		if err != nil || e.settled {
			return err
		}
	}
}

// attempt is one attempt of a group: claim, run, record.
func (r *eventGroup) attempt() error {
	if r.tx != nil {
		return r.runInTx()
	}
	return r.runClaimed()
}

// errLapsed is the reason for a wait after a lease that was over before anything began under it.
var errLapsed = fmt.Errorf("%w: a lease was over before its handler began", dedup.ErrUnavailable)

// decodeLate decodes the data of an event whose time came while the store was asked. The outcome is marked as refused if that fails.
func (d *task) decodeLate() outcome {
	if d.data != nil {
		return outcome{}
	}
	err := d.decode()
	if err == nil {
		return outcome{}
	}
	o := readingOutcome(err)
	o.refused = true
	return o
}

// refused returns the outcome for an event that must not run although its claim is granted. It is marked as refused if so.
func (d *task) refused() outcome {
	o := d.decision.outcome
	if !o.refused {
		o = d.decodeLate()
	}
	if o.refused {
		d.attempt = d.begunRuns(d.answer, o)
	}
	return o
}

// begunRuns is how many runs of a refused event have begun, as far as is known. The run that was cut short counts, and so does a reading
// that failed.
func (d *task) begunRuns(a dedup.Answer, o outcome) int {
	known := max(int(a.Failures), d.earlier, d.failures)
	switch {
	case o.class == ClassUncertain, o.unbegun:
		return known + 1
	case o.class == ClassCrashLoop:
		return known + int(a.Takeovers)
	}
	return known
}

// left is the error for an event whose run was cut short.
func left(ctx context.Context, d *task, o outcome) error {
	if cause := stopCause(ctx); ctx.Err() != nil {
		return fmt.Errorf("event %s: %w: %w", d.request.Key, cause, o.err)
	}
	return fmt.Errorf("event %s: %w", d.request.Key, o.err)
}

func (d *task) failure(o outcome) failure {
	now := time.Now()
	if d.firstFailure.IsZero() {
		d.firstFailure, d.lastFailure = now, now
	}
	return failure{
		key: d.request.Key, class: o.class, err: o.err, attempts: d.attempt, first: d.firstFailure, last: d.lastFailure,
		generation: d.request.Position.Generation,
	}
}

func (p *Processor) reason(o outcome) string {
	class := string(o.class) + ": "
	return cutText(class+strings.TrimPrefix(p.errorText(o.err), class), dedup.MaxReason) // a permanent error says so itself
}
