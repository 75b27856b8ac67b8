package idem

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file says what happens when a handler fails: classify tells what an error means, decide what is done about it.

// meaning is what one run of a handler came to.
type meaning uint8

const (
	succeeded   meaning = iota
	transient           // failed, may be tried again
	notApplied          // failed, surely without effect
	unknown             // panic or time-out: the effect may have happened
	permanent           // will never work
	unavailable         // not the event's fault
	stopped             // cut short by a drain or a revoke: not an attempt
	abandoned           // cut short and still running: left behind
	claimLost           // the lease ended while it ran
)

// outcome is the meaning of a run with what belongs to it.
type outcome struct {
	meaning meaning
	class   Class         // of the dead letter, should it come to that
	err     error         // nil only if succeeded
	after   time.Duration // not before; from RetryAfter
	unbegun bool          // the handler was not called, so that there is no doubt about its effect
	marked  bool          // the error has the mark of [Unavailable]: no store says so, but the handler
}

// failed says what failed, for log lines.
func (o *outcome) failed() string {
	if o.unbegun {
		return "event could not be read"
	}
	return "handler failed"
}

// classify reads the error of a run. ctx is the handler's context. What the handler says itself comes first; then what
// was done to it; any other error is transient. A success is a success, even of a handler whose context has ended.
func classify(ctx context.Context, err error) outcome { return classifyCause(context.Cause(ctx), err) }

func classifyCause(cause, err error) outcome {
	o := outcome{meaning: transient, class: ClassFailed, err: err}
	if after, ok := findMark(err, markRetryAfter); ok {
		o.after, o.class = after.after, ClassRetryAfter
	}
	var p *PanicError
	switch {
	case err == nil:
		return outcome{meaning: succeeded}
	case hasMark(err, markPermanent):
		o.meaning, o.class = permanent, ClassPermanent
	case hasMark(err, markNotApplied) && hasMark(err, markUnavailable):
		o.meaning, o.marked = unavailable, true
	case hasMark(err, markNotApplied):
		o.meaning = notApplied
	case errors.Is(cause, dedup.ErrClaimLost):
		o.meaning = claimLost
	case errors.Is(cause, ErrHandlerTimeout):
		o.meaning, o.class = unknown, ClassTimeout
	case cause != nil:
		o.meaning = stopped
	case errors.As(err, &p):
		o.meaning, o.class = unknown, ClassPanic
	case hasMark(err, markUnavailable):
		o.meaning, o.marked = unavailable, true
	}
	return o
}

// ownError is an error of a user's function that matches ErrAbandoned: something of its own was left behind, and nothing of this
// processor, its lanes or its stores. It matches all else that err matches.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }

func (e *ownError) Is(target error) bool { return target != ErrAbandoned && errors.Is(e.err, target) }

func (e *ownError) As(target any) bool { return errors.As(e.err, target) }

// own is err as the engine takes it from a function of the user's.
func own(err error) error {
	if errors.Is(err, ErrAbandoned) {
		return &ownError{err}
	}
	return err
}

// outcomes is what one call of a handler came to, for each of its events.
type outcomes struct {
	all   outcome
	many  bool              // the call was about more than one event
	named map[*task]outcome // of the events that a BatchError names; the others have succeeded
}

func newOutcomes(ctx context.Context, all outcome, entries []*task) outcomes {
	named := namedIn(all.err, len(entries))
	if named == nil || all.meaning == abandoned {
		return outcomes{all: all, many: len(entries) > 1}
	}
	o := outcomes{many: len(entries) > 1, named: make(map[*task]outcome, len(named))}
	cause := context.Cause(ctx)
	if all.class == ClassTimeout { // of a context that has ended with the run
		cause = ErrHandlerTimeout
	}
	for i, err := range named {
		if err != nil {
			o.named[entries[i]] = classifyCause(cause, err)
		}
	}
	return o
}

// namedIn returns the BatchError that err is, if all it names are among n events.
func namedIn(err error, n int) BatchError {
	for err != nil {
		if b, ok := err.(BatchError); ok { //nolint:errorlint // not in one of several branches: the others say something too
			named := BatchError{}
			for i, err := range b {
				switch {
				case i < 0 || i >= n:
					return nil
				case err != nil:
					named[i] = own(err)
				}
			}
			return named
		}
		if _, marked := err.(*markedError); marked { //nolint:errorlint // said of all of them
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}

func (o *outcomes) of(e *task) outcome {
	if o.named == nil {
		return o.all
	}
	return o.named[e] // succeeded if it is not there
}

// split tells the events that succeeded from the others.
func (o *outcomes) split(entries []*task) (good, bad []*task) {
	if o.named == nil && o.all.meaning == succeeded {
		return entries, nil
	}
	for _, e := range entries {
		if o.of(e).meaning == succeeded {
			good = append(good, e)
		} else {
			bad = append(bad, e)
		}
	}
	return good, bad
}

// inDoubt reports whether the error of a batch says nothing about this event: it may have had its effect, and is met as
// Uncertain, once and by itself (rule 2). What the handler said about all of them (not applied, unavailable) stands, and at
// most once means a dead letter in any case.
func (o *outcomes) inDoubt(e *task, act action) bool {
	said := o.all.meaning == notApplied
	return o.named == nil && o.many && !said && e.route.uncertain == RerunUncertain && (act == actRetry || act == actDelayedRetry || act == actDeadLetter)
}

// action is what the gate does next.
type action uint8

const (
	actComplete     action = iota // record as done, settle
	actRetry                      // give the claim back as failed, back off, claim again
	actWait                       // give the claim back as if nothing had run, wait, claim again
	actDelayedRetry               // leave it to a later attempt, record where, settle
	actDeadLetter                 // dead-letter, record as dead, settle
	actReclaim                    // claim again with a new token and obey the answer
	actGiveBack                   // give the claim back as unknown, settle nothing
)

// decide is the table. A transactional handler (claimed false) never leaves a doubt: what it did is rolled back.
func (d *task) decide(o outcome) action {
	if d.claimed && d.route.uncertain == DeadLetterUncertain && !o.unbegun {
		// At most once: only nil and NotApplied leave no doubt (rule 5). A run that was left behind is met as Uncertain by
		// whoever claims next.
		doubt := o.meaning == transient || o.meaning == unknown || o.meaning == stopped ||
			o.meaning == unavailable && !hasMark(o.err, markNotApplied)
		if doubt {
			return actDeadLetter
		}
	}
	switch o.meaning {
	case succeeded:
		return actComplete
	case permanent:
		return actDeadLetter
	case unavailable:
		if d.blameForOutage(o) {
			return d.retryOrDeadLetter(o)
		}
		return actWait
	case claimLost:
		return actReclaim
	case stopped, abandoned:
		return actGiveBack
	case transient, notApplied, unknown:
		return d.retryOrDeadLetter(o)
	}
	return actGiveBack
}

// retryOrLetter spends the retry policy: so many runs, and so long in place. A later attempt is one run.
func (d *task) retryOrDeadLetter(o outcome) action {
	policy := d.route.retry
	runs := policy.MaxAttempts
	if d.request.Position.Retry > 0 {
		runs = 1
	}
	if d.attempt-d.earlier >= runs {
		return d.delayOrDeadLetter(o)
	}
	d.delay = max(o.after, policy.backoff(d.attempt))
	if policy.InPlace != Forever && time.Since(d.blockedSince)+d.delay > policy.InPlace {
		return d.delayOrDeadLetter(o)
	}
	return actRetry
}

// maxOutages is how often in a row the store may be unavailable to one event while it answers a probe (rule 18).
const maxOutages = 5

// blameForOutage reports whether an outage counts as the event's own failure. An event that breaks its database is found by a few
// probes (rule 18). An error that the handler marked as [Unavailable] is taken at its word for [RetryPolicy].Outage.
func (d *task) blameForOutage(o outcome) bool {
	if !o.marked {
		return d.outages > maxOutages
	}
	limit := d.route.retry.Outage
	return limit != Forever && !d.downSince.IsZero() && time.Since(d.downSince) >= limit
}

// noteOutage notes an error that means "unavailable". answers reports whether the store answers a probe.
func (d *task) noteOutage(o outcome, answers bool) {
	switch {
	case !answers:
		d.downSince = time.Time{}
	case !o.marked:
		d.outages++
	case d.downSince.IsZero():
		d.downSince = time.Now()
	}
}

// maxTakeovers is how many holders of a claim may die before the event is taken to be what kills them, and maxStarts the
// same for transactions, of which only the start can be recorded (rule 18).
const (
	maxTakeovers = 3
	maxStarts    = 3
)
