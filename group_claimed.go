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
func (g *eventGroup) runClaimed() error {
	var fresh []*task
	permit, err := g.permit()
	if err != nil {
		return err
	}
	defer func() { permit.End(len(fresh) > 0) }()
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

// permit asks for the right to run a batch handler: before the claim, since nobody waits for it holding claims. A run of
// a handler with limits holds no other.
func (g *eventGroup) permit() (throttle.Permit, error) {
	if first := g.tasks[0].route; first.batch && !g.single {
		return first.limits.Acquire(g.ctx, g.batch.budget)
	}
	return throttle.Permit{}, nil
}

// claim asks the store for all events of the group and notes its answers. since is the time before the question.
func (g *eventGroup) claim() (since time.Time, err error) {
	asked := time.Now()
	token := dedup.NewToken()
	reqs, answers := g.requests()
	since, err = g.batch.p.claimAll(g.ctx, g.access, g.batch.budget, token, g.task, reqs, answers)
	for i, t := range g.sorted {
		t.excludeWait(time.Since(asked))
		if err == nil {
			t.noteAnswer(token, answers[i])
		}
	}
	return since, err
}

// runSingle carries out the answer for the only event of the group.
func (g *eventGroup) runSingle(since time.Time) error {
	t, p := g.tasks[0], g.batch.p
	if t.decision.step == stepRun || t.decision.step == stepRefuse {
		return g.callAll(g.tasks, since)
	}
	var s step
	var err error
	if t.decision.step == stepRunIgnored {
		hard, release := p.stopContext(g.ctx, true)
		defer release()
		s, err = p.shadow(g.ctx, hard, t, t.answer)
	} else {
		s, err = p.settleAnswer(g.ctx, t, t.answer, t.decision)
	}
	t.settled, t.pending = s.settled, s
	return err
}

// noteAnswer notes the store's answer.
func (t *task) noteAnswer(token dedup.Token, a dedup.Answer) {
	t.answer = a
	t.decision = verdict(a, &t.route.policy, &t.attempts, t.facts(a))
	if a.Verdict.Held() {
		t.claim = t.request.Held(token, a)
		t.attempt, t.uncertain = max(int(a.Failures), t.earlier)+1, a.Verdict == dedup.Uncertain
		t.busy = busy{}
	}
}

// known reports whether the event is a duplicate that its group settles.
func (t *task) known() bool { return t.decision.step == stepSkip && t.decision.joins }

// cutAtException ends the run before the first event that is neither fresh nor a duplicate. What was claimed behind it is
// given back before anybody waits for that event: two workers with the same events in another order would otherwise
// wait for each other for ever (rule 9).
func (g *eventGroup) cutAtException() {
	first := len(g.tasks)
	for i, t := range g.tasks {
		if t.exceptional() {
			t.isolated = true
			first = min(first, i)
		}
	}
	g.releaseUnstarted(g.tasks[first:])
	g.tasks = g.tasks[:first]
}

// exceptional reports whether the event must be asked for alone. A run whose time came meanwhile is decoded alone too.
func (t *task) exceptional() bool {
	return !t.decision.joins || t.decision.step == stepRun && t.decodeLate().refused
}

// releaseUnstarted gives back claims whose events have not begun.
func (g *eventGroup) releaseUnstarted(tasks []*task) {
	releases := make([]dedup.Release, 0, len(tasks))
	for _, t := range tasks {
		if t.answer.Verdict.Held() {
			t.stopRenewal()
			releases = append(releases, dedup.Release{Claim: t.claim, Outcome: dedup.Unstarted, Retention: t.route.retention})
		}
	}
	if len(releases) > 0 {
		g.batch.p.release(g.ctx, g.access, releases)
	}
}

// settleKnown settles duplicates, which moves the watermark over a run of them at once, and returns the others.
func (g *eventGroup) settleKnown() (fresh []*task) {
	for _, t := range g.tasks {
		if !t.known() {
			fresh = append(fresh, t)
			continue
		}
		g.batch.p.notifyKnown(g.ctx, t, t.answer)
		t.settled = true
	}
	g.advance()
	return fresh
}

// callAll calls the handlers, one after the other. Whatever is not a success ends the run: what has not begun is
// given back, and the event goes its own way.
func (g *eventGroup) callAll(fresh []*task, since time.Time) error {
	hard, release := g.batch.p.stopContext(g.ctx, true)
	defer release()
	calls := g.calls(fresh)
	for i := range calls {
		calls[i].startRenewal(hard, g.access, since)
	}
	for i := range calls {
		c, behind := &calls[i], calls[i+1:]
		if !c.held.Alive() { // this process was paused, and others may have taken over
			g.releaseCalls(calls[i:])
			return g.lapsed(c)
		}
		if g.single {
			if o := c.tasks[0].refused(); o.refused {
				return g.settleFailed(hard, c, outcomes{all: o}, c.tasks)
			}
		}
		if g.ctx.Err() != nil {
			g.releaseCalls(calls[i:])
			return stopCause(g.ctx)
		}
		own, ok := g.permitOf(c)
		if !ok { // wait for it, and hold nothing meanwhile
			g.releaseCalls(calls[i:])
			c.tasks[0].isolated = true
			return nil
		}
		completed, err := g.call(hard, c, behind)
		own.End(true)
		if err != nil || !completed {
			return err
		}
	}
	return nil
}

// lapsed ends a group whose lease was over before a call began. Its event waits before the store is asked again.
func (g *eventGroup) lapsed(c *call) error {
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
	t.isolated, t.pending = true, step{outage: errLapsed}
	return nil
}

// permit is the right to run a handler of single events, if there is one at once.
func (g *eventGroup) permitOf(c *call) (throttle.Permit, bool) {
	if c.route.batch || g.single {
		return throttle.Permit{}, true // the group has it
	}
	return c.route.limits.Try()
}

// keep has the claims of a call renewed. One lost claim cancels the whole call.
func (c *call) startRenewal(hard context.Context, access *storeAccess, since time.Time) {
	claims := make([]dedup.Claim, len(c.tasks))
	for i, t := range c.tasks {
		claims[i] = t.claim
	}
	c.held = access.renewer.KeepAll(hard, claims, since)
	for i, t := range c.tasks {
		t.held, t.heldAt = c.held, i
	}
}

// stopRenewal ends the renewal of the event's claim, if there is any.
func (t *task) stopRenewal() {
	if t.held != nil {
		t.held.Stop(t.heldAt)
		t.held = nil
	}
}

// releaseCalls gives back the claims of calls in one round trip: there may be hundreds.
func (g *eventGroup) releaseCalls(calls []call) {
	var tasks []*task
	for i := range calls {
		tasks = append(tasks, calls[i].tasks...)
	}
	g.releaseUnstarted(tasks)
}

// call makes one call of a handler. It reports whether all of it went well, so that the run may go on; if not, the claims
// of the calls behind it were given back first.
func (g *eventGroup) call(hard context.Context, c *call, behind []call) (completed bool, err error) {
	defer c.held.StopAll()
	began := time.Now()
	o := g.batch.p.callMany(c.held.Context(), c, nil)
	if !c.route.batch {
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

// completions are what the success of a call records.
func completions(tasks []*task) []dedup.Completion {
	done := make([]dedup.Completion, len(tasks))
	for i, t := range tasks {
		done[i] = dedup.Completion{Claim: t.claim, Retention: t.route.retention}
	}
	return done
}

func (c *call) completions() []dedup.Completion { return completions(c.tasks) }

func noClaims() []dedup.Completion { return nil }

func (t *task) completions() []dedup.Completion {
	if !t.claimed || t.claim.Key.ID == "" {
		return nil
	}
	return []dedup.Completion{{Claim: t.claim, Retention: t.route.retention}}
}

// completeAll records the success of events. It reports whether a claim was lost: those events go through the gate again
// and obey what it says.
func (g *eventGroup) completeAll(hard context.Context, good []*task) (lost bool, err error) {
	if len(good) == 0 {
		return false, nil
	}
	gone, err := g.batch.p.completeAll(hard, g.access, g.batch.budget, completions(good))
	if err != nil {
		return false, err
	}
	good[0].route.budget.Earn(len(good))
	for _, t := range good {
		t.handled, t.seen, t.settled, t.settlement = true, t.request.Origin, true, SettledHandled
	}
	for _, i := range gone {
		t := good[i]
		t.handled, t.settled, t.isolated = false, false, true
		g.batch.p.notifyLost(g.ctx, t)
	}
	g.advance()
	return len(gone) > 0, nil
}

// settleFailed does what must be done about failed events while their claims are held. Each of them goes through the gate by
// itself from here. Claims are given back together, since a store that is down costs a moment each time.
func (g *eventGroup) settleFailed(hard context.Context, c *call, o outcomes, bad []*task) error {
	var errs []error
	var back []dedup.Release
	p := g.batch.p
	for i, t := range bad {
		what := o.of(t)
		p.judge(hard, t, what, o.many && o.named == nil)
		t.isolated = true
		rec := underClaim{p: p, stopRenewal: t.stopRenewal, collect: &back}
		published := t.action.kind == actDeadLetter || t.action.kind == actDelayedRetry
		if published && len(errs) > 0 { // one that could not be published is enough
			rec.release(hard, t, t.action.release)
			continue
		}
		s, err := p.finish(g.ctx, hard, t, what, rec)
		t.stopRenewal()
		if err != nil {
			errs = append(errs, err)
		}
		t.settled, t.pending = s.settled, s
		if i > 0 && t.action.kind == actWait { // they wait together
			t.pending, t.isolated = step{}, false
		}
	}
	if len(back) > 0 {
		p.release(g.ctx, g.access, back)
	}
	g.advance()
	return errors.Join(errs...)
}
