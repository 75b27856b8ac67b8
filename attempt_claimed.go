package idem

import (
	"context"
	"errors"
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

// settle takes an event through the gate until it is settled, after what a run has left to be done first. An error says
// that it is not settled, and must come again.
func (p *Processor) settle(ctx context.Context, d *task, s step) error {
	pass := p.attemptClaimed
	if !d.claimed {
		pass = p.attemptTx
	}
	again := d.request.Position.Retry > 0
	for outages := 1; ; again = false {
		var err error
		switch {
		case s.outage != nil:
			err = p.waitOut(ctx, d, outages, s.outage)
			outages++
		case s.sleep > 0:
			err = sleep(ctx, s.sleep)
			again = true
		}
		if err == nil && again && !d.retryPaid {
			err = p.afford(ctx, d)
		}
		if err != nil {
			return err
		}
		if d.permit, err = d.route.limits.acquire(ctx, d.budget); err != nil {
			return err
		}
		func() {
			defer func() { d.permit.end(true) }() // also if an observer panics
			s, err = p.observeAttempt(ctx, d, pass)
		}()
		if s.settled && d.settlement == SettledHandled { // a duplicate earns nothing
			d.route.budget.earn(1)
		}
		if err != nil || s.settled {
			return err
		}
	}
}

// attemptClaimed is one trip of a claimed handler: claim, obey the verdict, run, record.
func (p *Processor) attemptClaimed(ctx context.Context, d *task) (step, error) {
	t := dedup.NewToken()
	a, since, err := p.claim(ctx, d, t)
	if err != nil {
		d.permit.end(false)
		return step{}, err
	}
	dec := verdict(a, &d.route.policy, &d.attempts, d.facts(a))
	if dec.step == stepRunIgnored {
		hard, release := p.stopContext(ctx, true)
		defer release()
		return p.shadow(ctx, hard, d, a)
	}
	if !a.Verdict.Held() {
		return p.settleAnswer(ctx, d, a, dec)
	}
	d.claim = d.request.Held(t, a)
	d.attempt, d.uncertain = max(int(a.Failures), d.earlier)+1, a.Verdict == dedup.Uncertain
	d.busySince, d.busyNotified = time.Time{}, false

	hard, release := p.stopContext(ctx, true)
	defer release()
	kept := d.access.renewer.KeepAll(hard, []dedup.Claim{d.claim}, since)
	defer kept.StopAll()
	if !kept.Alive() {
		return p.lapsed(ctx, d, kept)
	}
	o := dec.outcome
	if !o.refused {
		o = d.decodeLate()
	}
	switch {
	case o.refused:
		d.attempt = d.begunRuns(a, o)
	case ctx.Err() != nil: // a stop came with the answer: start nothing new
		p.giveBack(ctx, d, dedup.Unstarted)
		return step{}, stopCause(ctx)
	default:
		o = p.timedRun(kept.Context(), d, nil)
	}
	p.judge(hard, d, o, false)
	return p.finish(ctx, hard, d, o, underClaim{p: p, stopRenewal: kept.StopAll})
}

// lapsed gives back a claim whose lease was over before anything began under it: this process was paused, and another worker may
// have taken over. The store is asked again after a wait.
func (p *Processor) lapsed(ctx context.Context, d *task, kept *dedup.HeldClaims) (step, error) {
	d.permit.end(false)
	p.giveBack(ctx, d, dedup.Unstarted)
	cause := context.Cause(kept.Context())
	switch {
	case ctx.Err() != nil:
		return step{}, stopCause(ctx)
	case errors.Is(cause, dedup.ErrLeaseRenewerClosed):
		return step{}, fmt.Errorf("event %s: %w", d.request.Key, cause)
	}
	p.notifyLapsed(ctx, d)
	return step{outage: errLapsed}, nil
}

// errLapsed says that a lease was over before anything began under it.
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
