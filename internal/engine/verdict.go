package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// verdictStep is the next step after an answer of the store for one delivery.
type verdictStep uint8

const (
	// no answer, or one of a later release (rule 35): wait, ask again
	stepUnanswered verdictStep = iota
	stepRun                    // the claim is granted: run the handler
	stepRunIgnored             // shadow mode: run the handler without a claim
	// the claim is granted and the event must not run: decide by the outcome
	stepRefuse
	stepSkip           // settle the delivery as a duplicate
	stepBusy           // another worker holds the claim: wait, ask again
	stepAskAgain       // ask again without the fingerprint
	stepDeadLetterCopy // publish a dead letter of this copy; the record in the store stays
	stepStop           // return err
)

// decision is the result of verdict.
type decision struct {
	step    verdictStep
	outcome outcome        // outcome of a refusal
	class   idemtype.Class // class of the dead letter of a copy
	err     error
	ending  ending // end of the event, for the queue
	queue   bool   // the queue of the Kafka key must be known first (rule 4)
	joins   bool   // the event stays in its group; else the group ends before the event
}

// facts has the input of verdict beside the history of the event.
type facts struct {
	now       time.Time
	notBefore time.Time // an earlier attempt asked to run no sooner
	shadow    bool      // shadow mode
	tx        bool      // a transactional handler
	deferred  bool      // the delivery comes from the store, not from Kafka
	own       bool      // the store's record comes from this very Kafka record
	compared  bool      // the request had a fingerprint
	refusal   outcome   // failure of the reading, or zero
}

// verdict decides about an answer of the store.
func verdict(a dedup.Answer, p *Policy, h *attempts, f facts) decision {
	switch a.Verdict {
	case dedup.Fresh, dedup.Uncertain:
		return granted(a, p, h, f)
	case dedup.Busy:
		return decision{step: stepBusy}
	case dedup.Done, dedup.Dead, dedup.Rescheduled, dedup.Conflict, dedup.TooOld:
		if f.shadow {
			return decision{step: stepRunIgnored}
		}
	}
	switch a.Verdict {
	case dedup.Done:
		return decision{step: stepSkip, ending: endDone, joins: true}
	case dedup.Rescheduled:
		ordered := p.Mode == KeyOrdered
		return decision{
			step: stepSkip, ending: endRescheduled, queue: ordered && !f.deferred, joins: !ordered,
		}
	case dedup.Dead:
		return ofDead(a, f)
	case dedup.Conflict:
		return ofConflict(a, p, f)
	case dedup.TooOld:
		if p.TooOld == idemtype.StopTooOld {
			return decision{step: stepStop, err: idemtype.ErrTooOld, ending: endDead}
		}
		return copyDeadLetter(
			idemtype.ClassTooOld, errors.New("the event is older than the memory of the store"),
			endDead,
		)
	default:
		return decision{}
	}
}

func copyDeadLetter(class idemtype.Class, err error, e ending) decision {
	return decision{step: stepDeadLetterCopy, class: class, err: err, ending: e}
}

// granted decides about an event with a granted claim.
func granted(a dedup.Answer, p *Policy, h *attempts, f facts) decision {
	if f.tx && a.Verdict == dedup.Uncertain { // a transaction leaves no doubt: no valid answer
		return decision{}
	}
	if o := refuse(a, p, h, f); o.refused {
		return decision{step: stepRefuse, outcome: o}
	}
	// The event that kills its holders may be among those that were claimed together (rule 18).
	return decision{step: stepRun, joins: a.Takeovers == 0}
}

// refuse returns the outcome of an event that must not run although the claim is granted. Such an
// outcome is marked as refused.
func refuse(a dedup.Answer, p *Policy, h *attempts, f facts) outcome {
	wait := f.notBefore.Sub(f.now)
	switch {
	case a.Verdict == dedup.Uncertain && p.atMostOnce() && !f.shadow:
		err := errors.New("an earlier run was cut short and may have had its effect")
		return outcome{refused: true, meaning: unknown, class: idemtype.ClassUncertain, err: err}
	case !f.notBefore.IsZero() && wait > 0: // the error asked for more than the longest delay
		err := fmt.Errorf("not before %s", f.notBefore.UTC().Format(time.RFC3339))
		return outcome{
			refused: true, meaning: transient, class: idemtype.ClassRetryAfter, err: err,
			after: wait,
		}
	// The dead letter could not be sent.
	case h.earlier == 0 && int(a.Failures) >= p.Retry.MaxAttempts:
		return outcome{
			refused: true, meaning: transient, class: idemtype.ClassFailed,
			err: fmt.Errorf("failed %d times before", a.Failures),
		}
	case a.Takeovers > maxTakeovers:
		err := fmt.Errorf("%d holders of the claim died on it", a.Takeovers)
		return outcome{refused: true, meaning: unknown, class: idemtype.ClassCrashLoop, err: err}
	case f.refusal.err != nil:
		o := f.refusal
		o.refused = true
		return o
	}
	return outcome{}
}

// ofDead decides about a copy of an event that was given up.
func ofDead(a dedup.Answer, f facts) decision {
	switch {
	case discarded(a): // a person has decided: events behind it go on (rule 4)
		return decision{step: stepSkip}
	case f.own: // the dead letter was published, and only the offset was not committed
		return decision{step: stepSkip, ending: endDead}
	}
	// Another copy may be good although the first one was not. A copy is never dropped (rule 6).
	return copyDeadLetter(
		idemtype.ClassAlreadyDead, fmt.Errorf("this event was given up before: %s", a.Reason),
		endDead,
	)
}

func discarded(a dedup.Answer) bool { return strings.HasPrefix(a.Reason, dedup.ReasonDiscarded) }

// ofConflict decides about a copy with another content. Only a copy of a done event is skipped. In
// any other state either content may count in the end, so the copy must not be lost (rule 6).
func ofConflict(a dedup.Answer, p *Policy, f facts) decision {
	switch {
	case f.compared && f.own: // a record never changes, so the way of comparing has changed
		return decision{step: stepAskAgain}
	case p.Conflict != idemtype.DeadLetterConflict && a.Known == dedup.Done:
		return decision{step: stepSkip, joins: true}
	case p.Conflict != idemtype.DeadLetterConflict && a.Known == dedup.Busy:
		return decision{step: stepBusy}
	}
	d := copyDeadLetter(idemtype.ClassConflict, conflictError(a), endNone)
	d.queue = a.Known == dedup.Rescheduled && p.Mode == KeyOrdered && !f.deferred
	if a.Known == dedup.Dead && !discarded(a) { // blocks the queue as any dead event
		d.ending = endDead
	}
	return d
}

// conflictError describes the event that has the same ID.
func conflictError(a dedup.Answer) error {
	const other = "an event of this ID with another content "
	switch a.Known {
	case dedup.Done:
		return errors.New(other + "was handled")
	case dedup.Dead:
		return fmt.Errorf(other+"was given up: %s", a.Reason)
	case dedup.Busy:
		return errors.New(other + "is being handled")
	case dedup.Rescheduled:
		return errors.New(other + "waits for a later attempt")
	default:
		return errors.New(other + "was tried and is not done")
	}
}

const (
	endNone ending = iota
	endDone
	endRescheduled // on its way to a later attempt
	endDead
)

// ending is the end of an event.
type ending uint8
