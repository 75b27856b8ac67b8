package idem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/throttle"
)

// This file is the good case of claimed handlers: one round trip claims what a run holds, each call of a handler is
// completed before the next one begins.

// runClaimed claims the events of the run, settles duplicates, and runs what is fresh.
func (r *eventGroup) runClaimed() error {
	var fresh []*task
	permit, err := r.permit()
	if err != nil {
		return err
	}
	defer func() { permit.End(len(fresh) > 0) }()
	since, err := r.claim()
	if err != nil {
		r.tasks[0].permit.End(false)
		return err
	}
	if r.single {
		return r.runSingle(since)
	}
	r.cutAtException()
	if fresh = r.settleKnown(); len(fresh) == 0 {
		return nil
	}
	return r.callAll(fresh, since)
}

// permit asks for the right to run a batch handler: before the claim, since nobody waits for it holding claims. A run of
// a handler with limits holds no other.
func (r *eventGroup) permit() (throttle.Permit, error) {
	if first := r.tasks[0].route; first.batch && !r.single {
		return first.limits.Acquire(r.ctx, r.batch.budget)
	}
	return throttle.Permit{}, nil
}

// claim asks the store for all events of the group and notes its answers. since is the time before the question.
func (r *eventGroup) claim() (since time.Time, err error) {
	asked := time.Now()
	t := dedup.NewToken()
	reqs, answers := r.requests()
	since, err = r.batch.p.claimAll(r.ctx, r.access, r.batch.budget, t, r.delivery, reqs, answers)
	for i, e := range r.sorted {
		e.excludeWait(time.Since(asked))
		if err == nil {
			e.noteAnswer(t, answers[i])
		}
	}
	return since, err
}

// runSingle carries out the answer for the only event of the group.
func (r *eventGroup) runSingle(since time.Time) error {
	e, p := r.tasks[0], r.batch.p
	if e.decision.step == stepRun || e.decision.step == stepRefuse {
		return r.callAll(r.tasks, since)
	}
	var s step
	var err error
	if e.decision.step == stepRunIgnored {
		hard, release := p.stopContext(r.ctx, true)
		defer release()
		s, err = p.shadow(r.ctx, hard, e, e.answer)
	} else {
		s, err = p.settleAnswer(r.ctx, e, e.answer, e.decision)
	}
	e.settled, e.pending = s.settled, s
	return err
}

// noteAnswer notes the store's answer.
func (e *task) noteAnswer(t dedup.Token, a dedup.Answer) {
	e.answer = a
	e.decision = verdict(a, &e.route.policy, &e.attempts, e.facts(a))
	if a.Verdict.Held() {
		e.claim = e.request.Held(t, a)
		e.attempt, e.uncertain = max(int(a.Failures), e.earlier)+1, a.Verdict == dedup.Uncertain
		e.busy = busy{}
	}
}

// known reports whether the event is a duplicate that its group settles.
func (e *task) known() bool { return e.decision.step == stepSkip && e.decision.joins }

// cutAtException ends the run before the first event that is neither fresh nor a duplicate. What was claimed behind it is
// given back before anybody waits for that event: two workers with the same events in another order would otherwise
// wait for each other for ever (rule 9).
func (r *eventGroup) cutAtException() {
	first := len(r.tasks)
	for i, e := range r.tasks {
		if e.exceptional() {
			e.isolated = true
			first = min(first, i)
		}
	}
	r.releaseUnstarted(r.tasks[first:])
	r.tasks = r.tasks[:first]
}

// exceptional reports whether the event must be asked for alone. A run whose time came meanwhile is decoded alone too.
func (e *task) exceptional() bool {
	return !e.decision.joins || e.decision.step == stepRun && e.decodeLate().refused
}

// releaseUnstarted gives back claims whose events have not begun.
func (r *eventGroup) releaseUnstarted(entries []*task) {
	releases := make([]dedup.Release, 0, len(entries))
	for _, e := range entries {
		if e.answer.Verdict.Held() {
			e.stopRenewal()
			releases = append(releases, dedup.Release{Claim: e.claim, Outcome: dedup.Unstarted, Retention: e.route.retention})
		}
	}
	if len(releases) > 0 {
		r.batch.p.release(r.ctx, r.access, releases)
	}
}

// settleKnown settles duplicates, which moves the watermark over a run of them at once, and returns the others.
func (r *eventGroup) settleKnown() (fresh []*task) {
	for _, e := range r.tasks {
		if !e.known() {
			fresh = append(fresh, e)
			continue
		}
		r.batch.p.notifyKnown(r.ctx, e, e.answer)
		e.settled = true
	}
	r.advance()
	return fresh
}

// callAll calls the handlers, one after the other. Whatever is not a success ends the run: what has not begun is
// given back, and the event goes its own way.
func (r *eventGroup) callAll(fresh []*task, since time.Time) error {
	hard, release := r.batch.p.stopContext(r.ctx, true)
	defer release()
	calls := r.calls(fresh)
	for i := range calls {
		calls[i].keep(hard, r.access, since)
	}
	for i := range calls {
		c, behind := &calls[i], calls[i+1:]
		if !c.kept.Alive() { // this process was paused, and others may have taken over
			r.releaseCalls(calls[i:])
			return r.lapsed(c)
		}
		if r.single {
			if o := c.tasks[0].refused(); o.refused {
				return r.settleFailed(hard, c, outcomes{all: o}, c.tasks)
			}
		}
		if r.ctx.Err() != nil {
			r.releaseCalls(calls[i:])
			return stopCause(r.ctx)
		}
		own, ok := r.permitOf(c)
		if !ok { // wait for it, and hold nothing meanwhile
			r.releaseCalls(calls[i:])
			c.tasks[0].isolated = true
			return nil
		}
		went, err := r.call(hard, c, behind)
		own.End(true)
		if err != nil || !went {
			return err
		}
	}
	return nil
}

// lapsed ends a group whose lease was over before a call began. Its event waits before the store is asked again.
func (r *eventGroup) lapsed(c *call) error {
	e := c.tasks[0]
	e.permit.End(false)
	cause := context.Cause(c.kept.Context())
	switch {
	case r.ctx.Err() != nil:
		return stopCause(r.ctx)
	case errors.Is(cause, dedup.ErrLeaseRenewerClosed):
		return fmt.Errorf("event %s: %w", e.request.Key, cause)
	}
	r.batch.p.notifyLapsed(r.ctx, e)
	e.isolated, e.pending = true, step{outage: errLapsed}
	return nil
}

// permit is the right to run a handler of single events, if there is one at once.
func (r *eventGroup) permitOf(c *call) (throttle.Permit, bool) {
	if c.route.batch || r.single {
		return throttle.Permit{}, true // the group has it
	}
	return c.route.limits.Try()
}

// keep has the claims of a call renewed. One lost claim cancels the whole call.
func (c *call) keep(hard context.Context, l *storeAccess, since time.Time) {
	claims := make([]dedup.Claim, len(c.tasks))
	for i, e := range c.tasks {
		claims[i] = e.claim
	}
	c.kept = l.renewer.KeepAll(hard, claims, since)
	for i, e := range c.tasks {
		e.held, e.heldAt = c.kept, i
	}
}

// stopRenewal ends the renewal of the event's claim, if there is any.
func (e *task) stopRenewal() {
	if e.held != nil {
		e.held.Stop(e.heldAt)
		e.held = nil
	}
}

// releaseCalls gives back the claims of calls in one round trip: there may be hundreds.
func (r *eventGroup) releaseCalls(calls []call) {
	var entries []*task
	for i := range calls {
		entries = append(entries, calls[i].tasks...)
	}
	r.releaseUnstarted(entries)
}

// call makes one call of a handler. It reports whether all of it went well, so that the run may go on; if not, the claims
// of the calls behind it were given back first.
func (r *eventGroup) call(hard context.Context, c *call, behind []call) (went bool, err error) {
	defer c.kept.StopAll()
	began := time.Now()
	o := r.batch.p.callMany(c.kept.Context(), c, nil)
	if !c.route.batch {
		c.route.ahead.Note(time.Since(began))
	}
	good, bad := o.split(c.tasks)
	if len(bad) > 0 {
		r.releaseCalls(behind)
	}
	lost, err := r.completeAll(hard, good)
	switch {
	case len(bad) > 0:
		return false, errors.Join(err, r.settleFailed(hard, c, o, bad))
	case lost || err != nil:
		r.releaseCalls(behind)
		return false, err
	}
	return true, nil
}

// completions are what the success of a call records.
func completions(entries []*task) []dedup.Completion {
	done := make([]dedup.Completion, len(entries))
	for i, e := range entries {
		done[i] = dedup.Completion{Claim: e.claim, Retention: e.route.retention}
	}
	return done
}

func (c *call) completions() []dedup.Completion { return completions(c.tasks) }

func noClaims() []dedup.Completion { return nil }

func (d *task) completions() []dedup.Completion {
	if !d.claimed || d.claim.Key.ID == "" {
		return nil
	}
	return []dedup.Completion{{Claim: d.claim, Retention: d.route.retention}}
}

// completeAll records the success of events. It reports whether a claim was lost: those events go through the gate again
// and obey what it says.
func (r *eventGroup) completeAll(hard context.Context, good []*task) (lost bool, err error) {
	if len(good) == 0 {
		return false, nil
	}
	gone, err := r.batch.p.completeAll(hard, r.access, r.batch.budget, completions(good))
	if err != nil {
		return false, err
	}
	good[0].route.budget.Earn(len(good))
	for _, e := range good {
		e.handled, e.seen, e.settled, e.settlement = true, e.request.Origin, true, SettledHandled
	}
	for _, i := range gone {
		e := good[i]
		e.handled, e.settled, e.isolated = false, false, true
		r.batch.p.notifyLost(r.ctx, e)
	}
	r.advance()
	return len(gone) > 0, nil
}

// settleFailed does what must be done about failed events while their claims are held. Each of them goes through the gate by
// itself from here. Claims are given back together, since a store that is down costs a moment each time.
func (r *eventGroup) settleFailed(hard context.Context, c *call, o outcomes, bad []*task) error {
	var errs []error
	var back []dedup.Release
	p := r.batch.p
	for i, e := range bad {
		what := o.of(e)
		p.judge(hard, e, what, o.many && o.named == nil)
		e.isolated = true
		rec := underClaim{p: p, stopRenewal: e.stopRenewal, collect: &back}
		published := e.action.kind == actDeadLetter || e.action.kind == actDelayedRetry
		if published && len(errs) > 0 { // one that could not be published is enough
			rec.release(hard, e, e.action.release)
			continue
		}
		s, err := p.finish(r.ctx, hard, e, what, rec)
		e.stopRenewal()
		if err != nil {
			errs = append(errs, err)
		}
		e.settled, e.pending = s.settled, s
		if i > 0 && e.action.kind == actWait { // they wait together
			e.pending, e.isolated = step{}, false
		}
	}
	if len(back) > 0 {
		p.release(r.ctx, r.access, back)
	}
	r.advance()
	return errors.Join(errs...)
}
