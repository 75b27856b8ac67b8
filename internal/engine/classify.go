package engine

import (
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/mark"
)

// This file and decide.go define the consequences of a failure: classify returns the meaning of an
// error, decide the next step.

// meaning is the kind of the end of a run.
type meaning uint8

const (
	succeeded   meaning = iota
	transient           // failed, may be tried again
	notApplied          // failed, surely without effect
	unknown             // panic or time-out: the effect may have happened
	permanent           // failed, and every further run would fail too
	unavailable         // a dependency is down: the event is not the cause
	stopped             // interrupted by a drain or a revocation: not an attempt
	abandoned           // interrupted, and the handler still runs
	claimLost           // the lease ended during the run
)

// outcome is the end of a run.
type outcome struct {
	meaning   meaning
	class     idemtype.Class // class of the dead letter, if the event becomes one
	err       error          // nil only if succeeded
	after     time.Duration  // shortest wait before the next run, from RetryAfter
	unbegun   bool           // a reading failed: the handler was not called and had no effect
	marked    bool           // the handler marked the error as [Unavailable]; the store answers
	refused   bool           // the run was refused, and the tries in place are over
	unapplied bool           // an unavailable or permanent error that is marked as [NotApplied] too
}

// failed describes the failure for log lines.
func (o *outcome) failed() string {
	if o.unbegun {
		return "event could not be read"
	}
	return "handler failed"
}

// classify returns the meaning of an error. cause is the cause of the handler's context. A mark of
// the handler decides first, then the cause. Any other error is transient. A nil error is a
// success, even if the context has ended.
func classify(cause, err error) outcome {
	if err == nil {
		return outcome{meaning: succeeded}
	}
	o := outcome{meaning: transient, class: idemtype.ClassFailed, err: err}
	if after, ok := mark.Find(err, mark.RetryAfter); ok {
		o.after, o.class = after.After, idemtype.ClassRetryAfter
	}
	var p *idemtype.PanicError
	switch {
	case mark.Has(err, mark.Permanent):
		o.meaning, o.class = permanent, idemtype.ClassPermanent
		o.unapplied = mark.Has(err, mark.NotApplied)
	case mark.Has(err, mark.NotApplied) && mark.Has(err, mark.Unavailable):
		o.meaning, o.marked, o.unapplied = unavailable, true, true
	case mark.Has(err, mark.NotApplied):
		o.meaning = notApplied
	case errors.Is(cause, dedup.ErrClaimLost):
		o.meaning = claimLost
	case errors.Is(cause, idemtype.ErrHandlerTimeout):
		o.meaning, o.class = unknown, idemtype.ClassTimeout
	case cause != nil:
		o.meaning = stopped
	case errors.As(err, &p):
		o.meaning, o.class = unknown, idemtype.ClassPanic
	case mark.Has(err, mark.Unavailable):
		o.meaning, o.marked = unavailable, true
	}
	return o
}

// namedIn returns the BatchError in err. The result is nil without a BatchError, and if an index
// lies outside the n events of the call.
func namedIn(err error, n int) idemtype.BatchError {
	for err != nil {
		// A BatchError in one branch of a joined error does not count: the other branches matter
		// too.
		if b, ok := err.(idemtype.BatchError); ok { //nolint:errorlint // as above
			named := idemtype.BatchError{}
			for i, err := range b {
				switch {
				case i < 0 || i >= n:
					return nil
				case err != nil:
					named[i] = userErr(err)
				}
			}
			return named
		}
		// A mark around a BatchError holds for all events of the call.
		if _, marked := err.(*mark.Error); marked { //nolint:errorlint // this error only
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}
