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
	if p.shadowed(d, a.Verdict) {
		hard, release := p.stopContext(ctx, true)
		defer release()
		return p.shadow(ctx, hard, d, a)
	}
	if !a.Verdict.Held() {
		return p.settleAnswer(ctx, d, a)
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
	o, refused := d.refuse(a)
	if refused {
		o.refused = true
		d.attempt = d.begunRuns(a, o)
	} else {
		if ctx.Err() != nil { // a stop came with the answer: start nothing new
			p.giveBack(ctx, d, dedup.Unstarted)
			return step{}, stopCause(ctx)
		}
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

// refuse looks for events that must not run although the claim is ours.
func (d *task) refuse(a dedup.Answer) (o outcome, refused bool) {
	switch {
	case a.Verdict == dedup.Uncertain && d.route.uncertain == DeadLetterUncertain && !d.shadow:
		err := errors.New("an earlier run was cut short and may have had its effect")
		return outcome{meaning: unknown, class: ClassUncertain, err: err}, true
	case time.Until(d.notBefore()) > 0: // the longest delay of its handler is shorter than what it asked for
		err := fmt.Errorf("not before %s", d.notBefore().UTC().Format(time.RFC3339))
		return outcome{meaning: transient, class: ClassRetryAfter, err: err, after: time.Until(d.notBefore())}, true
	case d.earlier == 0 && int(a.Failures) >= d.route.retry.MaxAttempts: // its dead letter could not be sent the last time
		err := fmt.Errorf("failed %d times before", a.Failures)
		return outcome{meaning: transient, class: ClassFailed, err: err}, true
	case a.Takeovers > maxTakeovers:
		err := fmt.Errorf("%d holders of the claim died on it", a.Takeovers)
		return outcome{meaning: unknown, class: ClassCrashLoop, err: err}, true
	case d.refusal.err != nil:
		return d.refusal, true
	case d.data == nil: // its time came while the store was asked
		if err := d.decode(); err != nil {
			return readingOutcome(err), true
		}
	}
	return o, false
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

// settleAnswer does what a verdict says that grants nothing.
func (p *Processor) settleAnswer(ctx context.Context, d *task, a dedup.Answer) (step, error) {
	d.permit.end(false)
	switch a.Verdict {
	case dedup.Done:
		d.end = endDone
		p.notifyDuplicate(ctx, d, a)
		return step{settled: true}, nil
	case dedup.Rescheduled:
		return p.settleRescheduled(ctx, d, a)
	case dedup.Busy:
		return step{}, p.waitBusy(ctx, d, a)
	case dedup.Dead:
		if strings.HasPrefix(a.Reason, dedup.ReasonDiscarded) { // a person has decided: what waits behind it goes on (rule 4)
			p.notifyDuplicate(ctx, d, a)
			return step{settled: true}, nil
		}
		d.end = endDead
		if a.First.Same(d.message.origin()) { // the dead letter was sent and only the mark was lost
			p.notifyDuplicate(ctx, d, a)
			return step{settled: true}, nil
		}
		// Another copy may carry what the first one lacked. It is never dropped (rule 6).
		return p.deadLetterOnly(ctx, d, ClassAlreadyDead, fmt.Errorf("this event was given up before: %s", a.Reason))
	case dedup.Conflict:
		return p.settleConflict(ctx, d, a)
	case dedup.TooOld:
		d.end = endDead
		if d.route.tooOld == StopTooOld {
			return step{}, fmt.Errorf("event %s of %s: %w", d.request.Key, d.message.Time.UTC().Format(time.RFC3339), ErrTooOld)
		}
		return p.deadLetterOnly(ctx, d, ClassTooOld, errors.New("the event is older than what the store remembers"))
	case dedup.Fresh, dedup.Uncertain: // granted, so not for here
	}
	// Unknown to this release: no answer (rule 35).
	return step{outage: fmt.Errorf("%w: unexpected verdict %s", dedup.ErrUnavailable, a.Verdict)}, nil
}

// letterOnly dead-letters a copy whose key is none of its business.
func (p *Processor) deadLetterOnly(ctx context.Context, d *task, class Class, err error) (step, error) {
	o := outcome{class: class, err: err}
	f := d.failure(o)
	f.attempts = 0
	if err := p.publishDeadLetter(ctx, d.budget, d.message, f); err != nil {
		return step{}, err
	}
	d.settlement = SettledDeadLetter
	return step{settled: true}, nil
}

// waitBusy waits for another holder, holding nothing (rule 9). The holder may still die, so the event is never marked.
func (p *Processor) waitBusy(ctx context.Context, d *task, a dedup.Answer) error {
	now := time.Now()
	if d.busySince.IsZero() {
		d.busySince = now
	}
	if since := now.Sub(d.busySince); since > 2*p.cfg.Lease && !d.busyNotified {
		d.busyNotified = true
		p.log.WarnContext(ctx, "event is held elsewhere for long", append(p.deliveryAttrs(d), "for", since.Round(time.Millisecond))...)
		for _, o := range p.obs.stall {
			o.ObserveStall(ctx, StallEvent{Group: p.cfg.Group, Message: d.message, Key: d.request.Key, For: since, Busy: true})
		}
	}
	// A lease's end is known: come just after it. An earlier end is not: look about once a second.
	pause := min(max(a.Wait, 50*time.Millisecond), time.Second)
	err := d.budget.wait(ctx, pause-pause/4+jitter(pause/2), ErrBusy)
	d.excludeWait(time.Since(now))
	return err
}
