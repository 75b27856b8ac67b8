package dedup

import (
	"context"
	"errors"
	"time"
)

// DoEvent describes a call of [Do] or [DoTx] that has ended.
type DoEvent struct {
	// Key of the call.
	Key Key
	// Tx is set for a call of [DoTx].
	Tx bool
	// Outcome of the call.
	Outcome DoOutcome
	// Waited is the time until the function began, or until its run was excluded: for the store,
	// and for other callers of the key.
	Waited time.Duration
	// Ran is the running time of the function; zero if the function did not run. After several runs
	// in a transaction: that of the last one.
	Ran time.Duration
	// Took is the time of the whole call.
	Took time.Duration
	// Err is the error that the call returned; nil if the call did not return.
	Err error
}

// DoOutcome is the outcome of a call of [Do] or [DoTx], fit for a metric label.
type DoOutcome string

// The outcomes.
const (
	// DoRan: the function ran. The store keeps the result, or at least the completion.
	DoRan DoOutcome = "ran"
	// DoFailed: the function returned an error and may run again, or its transaction was rolled
	// back.
	DoFailed DoOutcome = "failed"
	// DoPanicked: the function did not return. The outcome is unknown, or the transaction was
	// rolled back.
	DoPanicked DoOutcome = "panicked"
	// DoReplayed: the result of an earlier run was returned.
	DoReplayed DoOutcome = "replayed"
	// DoInFlight: [ErrInFlight]; the function did not run.
	DoInFlight DoOutcome = "in_flight"
	// DoConflict: [ErrConflict]; the function did not run.
	DoConflict DoOutcome = "conflict"
	// DoGivenUp: [ErrGivenUp]; the function did not run.
	DoGivenUp DoOutcome = "given_up"
	// DoNoResult: [ErrNoResult], [ErrResult] or [ErrSealed] for a key that is done; the function
	// did not run.
	DoNoResult DoOutcome = "no_result"
	// DoUnknown: [ErrUnknownOutcome] of an earlier run or of this one, or [ErrUnknownCommit].
	DoUnknown DoOutcome = "unknown"
	// DoLost: the function ran, but another caller had taken the key over ([ErrClaimLost]).
	DoLost DoOutcome = "lost"
	// DoError: the function did not run, because the store was unavailable or the caller left.
	DoError DoOutcome = "error"
)

// doWatch follows one call. It is nil without [GuardConfig].Observe.
type doWatch struct {
	key      Key
	tx       bool
	began    time.Time
	run      time.Time     // when the last run began; zero: no run began
	ran      time.Duration // how long the last run took
	inside   bool          // a run has begun and not ended
	err      error         // the error of the last run
	unknown  bool          // the outcome of the last run is unknown
	returned bool          // the call has returned
}

func newDoWatch(key Key, tx bool) *doWatch {
	return &doWatch{key: key, tx: tx, began: time.Now()}
}

// beginRun notes the begin of a run.
func (w *doWatch) beginRun() { w.run, w.inside, w.err, w.unknown = time.Now(), true, nil, false }

// endRun notes the end of a run.
func (w *doWatch) endRun(err error) { w.ran, w.inside, w.err = time.Since(w.run), false, err }

// markUnknown notes that the outcome of the last run is unknown.
func (w *doWatch) markUnknown() {
	if w != nil {
		w.unknown = true
	}
}

// report calls observe with the outcome of the call.
func (w *doWatch) report(ctx context.Context, observe func(context.Context, DoEvent), replayed bool,
	err error) {
	e := DoEvent{Key: w.key, Tx: w.tx, Took: time.Since(w.began), Ran: w.ran, Err: err}
	e.Waited = e.Took
	if !w.run.IsZero() {
		e.Waited = w.run.Sub(w.began)
	}
	if w.inside {
		e.Ran = time.Since(w.run)
	}
	e.Outcome = w.outcome(replayed, err)
	observe(ctx, e)
}

func (w *doWatch) outcome(replayed bool, err error) DoOutcome {
	switch {
	case w.inside:
		return DoPanicked
	case !w.returned && !w.run.IsZero():
		return DoUnknown
	case !w.returned:
		return DoError
	case err == nil && replayed: // also after a run that was rolled back
		return DoReplayed
	case err == nil:
		return DoRan
	case w.err != nil && errors.Is(err, w.err): // also if it matches an error below
		if w.unknown {
			return DoUnknown
		}
		return DoFailed
	}
	return w.outcomeOf(err)
}

// outcomeOf returns the outcome of a call without an error of the function.
func (w *doWatch) outcomeOf(err error) DoOutcome {
	ran := !w.run.IsZero()
	switch {
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrUnknownCommit):
		return DoUnknown
	case errors.Is(err, ErrClaimLost) && ran:
		return DoLost
	case errors.Is(err, ErrResult) && ran && !w.tx: // the function has had its effect
		return DoRan
	case errors.Is(err, ErrInFlight):
		return DoInFlight
	case errors.Is(err, ErrConflict):
		return DoConflict
	case errors.Is(err, ErrGivenUp):
		return DoGivenUp
	case ran: // rolled back
		return DoFailed
	case errors.Is(err, ErrNoResult), errors.Is(err, ErrResult), errors.Is(err, ErrSealed):
		return DoNoResult
	}
	return DoError
}
