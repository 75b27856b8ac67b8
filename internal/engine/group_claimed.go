package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file runs groups of claimed handlers. One round trip claims all events of a group. The
// events of a call are completed before the next call begins.

// runClaimed claims the events of the group, settles the duplicates and runs the fresh events.
func (g *eventGroup) runClaimed() error {
	var fresh []*task
	if err := g.acquirePermit(); err != nil {
		return err
	}
	defer func() { g.permit.End(len(fresh) > 0) }()
	since, err := g.claim()
	if err != nil {
		g.tasks[0].permit.End(false)
		return err
	}
	if g.single {
		return g.runSingle(since)
	}
	g.cutAtException()
	if fresh = g.settleKnown(); len(fresh) == 0 {
		return nil
	}
	return g.callAll(fresh, since)
}

// acquirePermit waits for the right to run a batch handler. The wait comes before the claim, so
// that no claims are held meanwhile. A handler with limits shares its groups with no other handler.
func (g *eventGroup) acquirePermit() (err error) {
	if first := g.tasks[0].route; first.Batch && !g.single {
		g.permit, err = first.limits.Acquire(g.ctx, g.batch.budget)
	}
	return err
}

// claim asks the store for all events of the group and stores the answers in the tasks. since is
// the time before the call.
func (g *eventGroup) claim() (since time.Time, err error) {
	asked := time.Now()
	token := dedup.NewToken()
	reqs, answers := g.requests()
	since, err = g.access.claimAll(g.ctx, g.batch.budget, token, reqs, answers,
		g.batch.p.claimObserver(g.ctx, g.sorted, answers), g.leave())
	for i, t := range g.sorted {
		t.excludeWait(time.Since(asked))
		if err == nil {
			t.noteAnswer(token, answers[i])
		}
	}
	return since, err
}

// runSingle acts on the answer for the only event of the group.
func (g *eventGroup) runSingle(since time.Time) error {
	t, p := g.tasks[0], g.batch.p
	if t.decision.step == stepRun || t.decision.step == stepRefuse {
		return g.callAll(g.tasks, since)
	}
	var s attemptResult
	var err error
	if t.decision.step == stepRunIgnored {
		hard, release := p.stopContext(g.ctx, true)
		defer release()
		s, err = p.runIgnored(g.ctx, hard, t, t.answer)
	} else {
		s, err = p.settleAnswer(g.ctx, t, t.answer, t.decision)
	}
	t.settled, t.pending = s.settled, s
	return err
}

// noteAnswer stores the answer of the store and the decision about it.
func (t *task) noteAnswer(token dedup.Token, a dedup.Answer) {
	t.answer = a
	t.decision = verdict(a, &t.route.Policy, &t.attempts, t.facts(a))
	if a.Verdict.Held() {
		t.claim = t.request.Held(token, a)
		t.attempt, t.uncertain = t.failedRuns(a)+1, a.Verdict == dedup.Uncertain
		t.busy = busy{}
	}
}

// isDuplicate reports whether the event is a duplicate that its group settles.
func (t *task) isDuplicate() bool { return t.decision.step == stepSkip && t.decision.joins }

// cutAtException ends the group before the first event that is neither fresh nor a duplicate. The
// claims behind that event are released before the batch waits for the event. Else two workers with
// the same events in different orders would wait for each other forever (rule 9).
func (g *eventGroup) cutAtException() {
	first := len(g.tasks)
	for i, t := range g.tasks {
		if !t.decision.joins || i < first && t.decision.step == stepRun && t.decodeFresh().refused {
			t.isolated = true
			first = min(first, i)
		}
	}
	g.releaseUnstarted(g.tasks[first:])
	g.tasks = g.tasks[:first]
}

// releaseUnstarted releases claims without a started handler.
func (g *eventGroup) releaseUnstarted(tasks []*task) {
	releases := make([]dedup.Release, 0, len(tasks))
	for _, t := range tasks {
		if t.answer.Verdict.Held() {
			t.stopRenewal()
			releases = append(releases, dedup.Release{
				Claim: t.claim, Outcome: dedup.Unstarted, Retention: t.route.Retention,
			})
		}
	}
	if len(releases) > 0 {
		g.access.release(g.ctx, releases)
	}
}

// settleKnown settles the duplicates, reports the progress once for all of them, and returns the
// other tasks.
func (g *eventGroup) settleKnown() (fresh []*task) {
	for _, t := range g.tasks {
		if !t.isDuplicate() {
			fresh = append(fresh, t)
			continue
		}
		g.batch.p.notifyKnown(g.ctx, t, t.answer)
		t.settled = true
	}
	g.advance()
	return fresh
}

// callAll calls the handlers one after the other. The first call that does not succeed ends the
// group. The claims of the calls behind it are released.
func (g *eventGroup) callAll(fresh []*task, since time.Time) error {
	hard, release := g.batch.p.stopContext(g.ctx, true)
	defer release()
	calls := g.calls(fresh)
	for i := range calls {
		calls[i].startRenewal(hard, g.access, since)
	}
	for i := range calls {
		c, behind := &calls[i], calls[i+1:]
		// The process was paused, and another worker may have taken over the claims.
		if !c.held.Alive() {
			g.releaseCalls(calls[i:])
			return g.lapsed(c)
		}
		if g.single {
			o := c.tasks[0].refusedOutcome()
			if c.tasks[0].destination == destReread {
				c.tasks[0].permit.End(false)
				g.releaseCalls(calls[i:])
				return nil
			}
			if o.refused {
				c.tasks[0].endTurn(false)
				return g.settleFailed(hard, c, outcomes{all: o}, c.tasks)
			}
		}
		if g.ctx.Err() != nil {
			g.releaseCalls(calls[i:])
			return stopCause(g.ctx)
		}
		if !g.permitFor(c) { // wait for a permit later, without claims
			g.releaseCalls(calls[i:])
			c.tasks[0].isolated = true
			return nil
		}
		completed, err := g.call(hard, c, behind)
		if err != nil || !completed {
			return err
		}
	}
	return nil
}

// lapsed ends a group whose lease ended before the call of a handler. The event waits before its
// next claim.
func (g *eventGroup) lapsed(c *handlerCall) error {
	t := c.tasks[0]
	t.permit.End(false)
	cause := context.Cause(c.held.Context())
	switch {
	case g.ctx.Err() != nil:
		return stopCause(g.ctx)
	case errors.Is(cause, dedup.ErrLeaseRenewerClosed):
		return fmt.Errorf("event %s: %w", t.request.Key, cause)
	}
	g.batch.p.notifyLapsed(g.ctx, t)
	t.isolated, t.pending = true, attemptResult{outage: errLapsed}
	return nil
}

// permitFor takes a permit for a call of a handler of single events. The result is false if no
// permit is free.
func (g *eventGroup) permitFor(c *handlerCall) (ok bool) {
	switch {
	case g.single:
		return true // the group holds the permit
	case c.route.paused(): // another lane has opened the breaker meanwhile
		return false
	case c.route.Batch:
		return true // the group holds the permit
	}
	c.permit, ok = c.route.limits.Try()
	return ok
}

// startRenewal renews the leases of the call's claims. The loss of one claim cancels the whole
// call.
func (c *handlerCall) startRenewal(hard context.Context, access *storeAccess, since time.Time) {
	claims := make([]dedup.Claim, len(c.tasks))
	for i, t := range c.tasks {
		claims[i] = t.claim
	}
	c.held = access.renewer.KeepAll(hard, claims, since)
	for i, t := range c.tasks {
		t.held, t.heldAt = c.held, i
	}
}

// releaseCalls releases the claims of several calls in one round trip.
func (g *eventGroup) releaseCalls(calls []handlerCall) {
	var tasks []*task
	for i := range calls {
		tasks = append(tasks, calls[i].tasks...)
	}
	g.releaseUnstarted(tasks)
}

// call makes one handler call and completes the events. completed is false if an event failed or a
// claim was lost. The claims of the calls behind this one are released then.
func (g *eventGroup) call(
	hard context.Context, c *handlerCall, behind []handlerCall,
) (completed bool, err error) {
	defer c.held.StopAll()
	defer c.permit.End(true) // also if an observer panics
	began := time.Now()
	o := g.batch.p.callMany(c.held.Context(), c, nil)
	c.permit.End(true)
	g.endTurns()
	if !c.route.Batch {
		c.route.ahead.Note(time.Since(began))
	}
	good, bad := o.split(c.tasks)
	if len(bad) > 0 {
		g.releaseCalls(behind)
	}
	lost, err := g.completeAll(hard, good)
	switch {
	case len(bad) > 0:
		return false, errors.Join(err, g.settleFailed(hard, c, o, bad))
	case lost || err != nil:
		g.releaseCalls(behind)
		return false, err
	}
	return true, nil
}

// completeAll records the success of events. lost reports whether a claim was lost. Each event with
// a lost claim is claimed again by itself.
func (g *eventGroup) completeAll(hard context.Context, good []*task) (lost bool, err error) {
	if len(good) == 0 {
		return false, nil
	}
	gone, err := g.access.completeAll(hard, g.batch.budget, completions(good))
	if err != nil {
		return false, err
	}
	good[0].route.budget.Earn(len(good))
	for _, t := range good {
		t.settlement = t.handledHere()
	}
	for _, i := range gone {
		t := good[i]
		t.settlement, t.isolated = settlement{}, true
		g.batch.p.notifyLost(g.ctx, t)
	}
	g.advance()
	return len(gone) > 0, nil
}

// settleFailed acts on failed events while their claims are held. Each of these events is isolated
// from then on. The claims are released in one call, because each call costs a time-out while the
// store is down.
func (g *eventGroup) settleFailed(
	hard context.Context, c *handlerCall, o outcomes, bad []*task,
) error {
	var errs []error
	var back []dedup.Release
	p := g.batch.p
	for i, t := range bad {
		what := o.of(t)
		p.judge(hard, t, what, o.many && o.named == nil)
		t.isolated = true
		rec := underClaim{p: p, stopRenewal: t.stopRenewal, collect: &back}
		published := t.action.kind == actDeadLetter || t.action.kind == actDelayedRetry
		switch {
		// The producer has failed already: do not try again for each event.
		case published && len(errs) > 0:
			rec.release(hard, t, t.action.release)
			continue
		case t.action.kind == actDelayedRetry && g.wouldOvertake(t):
			t.askedFor = t.action.notBefore
			rec.release(hard, t, t.action.release)
			continue
		}
		s, err := p.finish(g.ctx, hard, t, what, rec)
		t.stopRenewal()
		if err != nil {
			errs = append(errs, err)
		}
		t.settled, t.pending = s.settled, s
		if i > 0 && t.action.kind == actWait { // the first event waits for all
			t.pending, t.isolated = attemptResult{}, false
		}
	}
	if len(back) > 0 {
		g.access.release(g.ctx, back)
	}
	g.advance()
	return errors.Join(errs...)
}
