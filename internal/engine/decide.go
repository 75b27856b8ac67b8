package engine

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// moment has the facts of a decision beside the history of the event.
type moment struct {
	now       time.Time
	draw      float64       // from [0, 1), for the jitter of the back-off
	claimed   bool          // a run under a claim; the effect cannot be rolled back
	unnamed   bool          // the error of a call of several events does not name this one
	retry     uint64        // number of this delayed retry; zero: the original record
	from      time.Duration // delay of the record's retry topic; zero: another topic
	notBefore time.Time     // an earlier attempt asked to run no sooner
}

// actionKind is the next step of an event after a run, or after a refusal to run it.
type actionKind uint8

const (
	actComplete actionKind = iota // record the event as done, settle it
	actRetry                      // release the claim, pause, claim again
	actWait                       // release the claim, wait for the dependency, claim again
	// publish or defer the next attempt, record the event as rescheduled, settle it
	actDelayedRetry
	actDeadLetter // publish the dead letter, record the event as dead, settle it
	actReclaim    // the claim is lost: claim again and follow the new answer
	actIsolate    // release the claim, pause, run once more in a call of its own
	actGiveBack   // release the claim, return an error
)

// action is the next step of an event, for finish.
type action struct {
	kind      actionKind
	delay     time.Duration // pause before the next run in place; delay of a delayed retry
	notBefore time.Time     // earliest time of a delayed retry, if the error asked for one
	counted   bool          // a delayed retry after a run that counts as an attempt
	// outcome for the release of the claim; after a dead letter or a delayed retry only if that
	// could not be published
	release dedup.Outcome
}

// decide chooses the next step of an event. A transactional run leaves no doubt about the effect,
// because a failed one was rolled back.
func decide(o outcome, p *Policy, h *attempts, at moment) action {
	switch {
	case o.meaning == succeeded:
		return action{kind: actComplete}
	case o.refused:
		if o.meaning == transient || o.unbegun && o.meaning != permanent {
			return delayOrDeadLetter(o, p, at)
		}
		return deadLetterAction(&o, p)
	}
	a := decideAttempt(o, p, h, at)
	failed := a.kind == actRetry || a.kind == actDelayedRetry || a.kind == actDeadLetter
	if at.unnamed && failed && o.meaning != notApplied && !p.atMostOnce() &&
		p.waitsInPlace(o.after, h, at.now) {
		// The error does not name the events that had an effect (rule 2).
		return action{kind: actIsolate, delay: o.after, release: dedup.Unknown}
	}
	return a
}

// decideAttempt decides about a run that began, or a reading that failed.
func decideAttempt(o outcome, p *Policy, h *attempts, at moment) action {
	if at.claimed && p.atMostOnce() && o.inDoubt() {
		return deadLetterAction(&o, p)
	}
	switch o.meaning {
	case succeeded:
		return action{kind: actComplete}
	case permanent:
		return deadLetterAction(&o, p)
	case unavailable:
		if !h.blamed(o, p.Retry, at.now) {
			return action{kind: actWait, release: dedup.Unstarted}
		}
	case claimLost:
		return action{kind: actReclaim, release: dedup.Unknown}
	case stopped, abandoned:
		return action{kind: actGiveBack, release: dedup.Unknown}
	case transient, notApplied, unknown:
	}
	return retryOrDelay(o, p, h, at)
}

// inDoubt reports whether the effect may have happened. For a handler at most once, only nil and
// NotApplied leave no doubt (rule 5). An abandoned handler still runs, so the next claim gets the
// verdict Uncertain.
func (o *outcome) inDoubt() bool {
	switch o.meaning {
	case transient, unknown, stopped:
		return !o.unbegun
	case unavailable:
		return !o.unbegun && !o.unapplied
	case succeeded, notApplied, permanent, abandoned, claimLost:
	}
	return false
}

// retryOrDelay applies the limits of the retry policy: attempts, and time in place. A delayed retry
// is one attempt.
func retryOrDelay(o outcome, p *Policy, h *attempts, at moment) action {
	runs := p.Retry.MaxAttempts
	if at.retry > 0 {
		runs = 1
	}
	if h.attempt-h.earlier >= runs {
		return delayOrDeadLetter(o, p, at)
	}
	delay := max(o.after, backoff(p.Retry, h.attempt, at.draw))
	if !p.waitsInPlace(max(delay, 1), h, at.now) {
		return delayOrDeadLetter(o, p, at)
	}
	return action{kind: actRetry, delay: delay, release: dedup.Failed}
}

// waitsInPlace reports whether a pause is short enough for the time in place. No pause always is.
func (p *Policy) waitsInPlace(pause time.Duration, h *attempts, now time.Time) bool {
	if pause <= 0 || p.Retry.InPlace == idemtype.Forever {
		return true
	}
	left := p.Retry.InPlace
	if !h.blockedSince.IsZero() {
		left -= now.Sub(h.blockedSince)
	}
	return pause <= left // no sum: adding to a pause of nearly Forever would overflow
}

// delayOrDeadLetter chooses the next delayed retry of an event without retries in place.
func delayOrDeadLetter(o outcome, p *Policy, at moment) action {
	if p.Mode == Blocking || at.retry >= maxReschedules {
		return deadLetterAction(&o, p)
	}
	next, counted := nextDelay(o.after, p, at)
	if next >= len(p.Delays) {
		return deadLetterAction(&o, p)
	}
	a := action{
		kind: actDelayedRetry, delay: p.Delays[next], counted: counted, release: p.unpublished(&o),
	}
	if o.after > 0 {
		a.notBefore = at.now.Add(o.after)
	}
	return a
}

// nextDelay returns the index of the next delay, or len(p.Delays) after the last one. An event that
// must wait for longer than the longest delay gets that delay again. No attempt counts then
// (rule 42).
func nextDelay(after time.Duration, p *Policy, at moment) (next int, counted bool) {
	if p.Mode == KeyOrdered { // the store keeps any delay
		return int(at.retry), true
	}
	for next < len(p.Delays) && p.Delays[next] <= at.from {
		next++
	}
	if after <= 0 {
		return next, true
	}
	for i := next; i < len(p.Delays); i++ {
		if p.Delays[i] >= after {
			return i, true
		}
	}
	// The event has run with every delay.
	if after <= p.Delays[len(p.Delays)-1] && !at.notBefore.After(at.now) {
		return next, true
	}
	return len(p.Delays) - 1, false
}

func deadLetterAction(o *outcome, p *Policy) action {
	return action{kind: actDeadLetter, release: p.unpublished(o)}
}

// note returns the history after an outcome. answers is true if the store answers a ping, and
// matters only for an outage.
func (h attempts) note(o outcome, p idemtype.RetryPolicy, now time.Time, answers bool) attempts {
	switch {
	case o.meaning != unavailable:
		h.outages, h.downSince = 0, time.Time{}
	case !answers: // the store is down, so the event is not the cause
		h.outages, h.downSince = min(h.outages, maxOutages), time.Time{}
	case !o.marked:
		h.outages++
	case h.downSince.IsZero():
		h.downSince = now
	}
	if o.meaning == succeeded || o.meaning == unavailable && !h.blamed(o, p, now) {
		return h
	}
	if h.firstFailure.IsZero() {
		h.firstFailure = now
	}
	if h.blockedSince.IsZero() {
		h.blockedSince = now
	}
	h.lastFailure = now
	return h
}

// maxOutages limits the consecutive outages of one event while the store answers pings (rule 18).
const maxOutages = 5

// blamed reports whether an outage counts as a failure of the event. maxOutages finds an event that
// breaks the database (rule 18). An error that the handler marks as unavailable counts after
// RetryPolicy.Outage.
func (h *attempts) blamed(o outcome, p idemtype.RetryPolicy, now time.Time) bool {
	if !o.marked {
		return h.outages > maxOutages
	}
	return p.Outage != idemtype.Forever && !h.downSince.IsZero() && now.Sub(h.downSince) >= p.Outage
}

// maxTakeovers limits the holders of a claim that may die before the event counts as the cause.
// maxStarts is the same limit for transactions, since only their start can be recorded (rule 18).
const (
	maxTakeovers = 3
	maxStarts    = 3
)

// failedRuns returns the number of failed runs that are known after an answer of the store.
func (h *attempts) failedRuns(a dedup.Answer) int {
	return max(int(a.Failures), h.earlier) + h.failures - h.earlier
}

// attempts is the history of an event.
type attempts struct {
	attempt   int  // number of the current or last run, from 1
	uncertain bool // an earlier run may have had the effect
	earlier   int  // runs that an earlier copy of the event has used
	// failed runs without a claim, and those of earlier copies; the store counts those under a claim
	failures     int
	firstFailure time.Time
	lastFailure  time.Time
	// start of the time for retries in place, moved on by waits that the event did not cause
	blockedSince time.Time
	// consecutive outages for the event while the store answered a ping
	outages    int
	downSince  time.Time // start of an outage that only the handler reports; zero without one
	rereads    int       // failed readings of this delivery
	readerDown int       // waits for a dependency of the reading
}
