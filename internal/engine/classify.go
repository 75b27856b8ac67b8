package engine

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/mark"
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
	meaning   meaning
	class     idemtype.Class // of the dead letter, should it come to that
	err       error          // nil only if succeeded
	after     time.Duration  // not before; from RetryAfter
	unbegun   bool           // a reading failed: the handler was not called and had no effect
	marked    bool           // the handler marked the error as [Unavailable]; the store answers
	refused   bool           // the run was refused, and the tries in place are over
	unapplied bool           // an unavailable error that is marked as [NotApplied] too
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
func classify(cause, err error) outcome {
	o := outcome{meaning: transient, class: idemtype.ClassFailed, err: err}
	if after, ok := mark.Find(err, mark.RetryAfter); ok {
		o.after, o.class = after.After, idemtype.ClassRetryAfter
	}
	var p *idemtype.PanicError
	switch {
	case err == nil:
		return outcome{meaning: succeeded}
	case mark.Has(err, mark.Permanent):
		o.meaning, o.class = permanent, idemtype.ClassPermanent
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

// userError is an error of a user's function that matches ErrAbandoned: something of its own was left behind, and nothing of this
// processor, its lanes or its stores. It matches all else that err matches.
type userError struct{ err error }

func (e *userError) Error() string { return e.err.Error() }

func (e *userError) Is(target error) bool {
	return target != idemtype.ErrAbandoned && errors.Is(e.err, target)
}

func (e *userError) As(target any) bool { return errors.As(e.err, target) }

// userErr is err as the engine takes it from a function of the user's.
func userErr(err error) error {
	if errors.Is(err, idemtype.ErrAbandoned) {
		return &userError{err}
	}
	return err
}

// outcomes is what one call of a handler came to, for each of its events.
type outcomes struct {
	all   outcome
	many  bool              // the call was about more than one event
	named map[*task]outcome // of the events that a BatchError names; the others have succeeded
}

func newOutcomes(ctx context.Context, all outcome, tasks []*task) outcomes {
	named := namedIn(all.err, len(tasks))
	if named == nil || all.meaning == abandoned {
		return outcomes{all: all, many: len(tasks) > 1}
	}
	o := outcomes{many: len(tasks) > 1, named: make(map[*task]outcome, len(named))}
	cause := context.Cause(ctx)
	if all.class == idemtype.ClassTimeout { // of a context that has ended with the run
		cause = idemtype.ErrHandlerTimeout
	}
	for i, err := range named {
		if err != nil {
			o.named[tasks[i]] = classify(cause, err)
		}
	}
	return o
}

// namedIn returns the BatchError that err is, if all it names are among n events.
func namedIn(err error, n int) idemtype.BatchError {
	for err != nil {
		if b, ok := err.(idemtype.BatchError); ok { //nolint:errorlint // not in one of several branches: the others say something too
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
		if _, marked := err.(*mark.Error); marked { //nolint:errorlint // said of all of them
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}

func (o *outcomes) of(t *task) outcome {
	if o.named == nil {
		return o.all
	}
	return o.named[t] // succeeded if it is not there
}

// split tells the events that succeeded from the others.
func (o *outcomes) split(tasks []*task) (good, bad []*task) {
	if o.named == nil && o.all.meaning == succeeded {
		return tasks, nil
	}
	for _, t := range tasks {
		if o.of(t).meaning == succeeded {
			good = append(good, t)
		} else {
			bad = append(bad, t)
		}
	}
	return good, bad
}
