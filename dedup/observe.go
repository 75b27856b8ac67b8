package dedup

import (
	"context"
	"errors"
	"time"
)

// DoEvent is how a call of [Do] or [DoTx] ended.
type DoEvent struct {
	// Key that the caller asked for.
	Key Key
	// Tx says that it was [DoTx].
	Tx bool
	// Outcome is what became of it.
	Outcome DoOutcome
	// Waited is how long it took until the function began, or until it was known that it would not: for the store, and for
	// other callers of the key.
	Waited time.Duration
	// Ran is how long the function ran; zero if it did not. Of more than one run in a transaction it is the last one's.
	Ran time.Duration
	// Took is the whole call.
	Took time.Duration
	// Err is what the caller is told; nil if the call did not return.
	Err error
}

// DoOutcome is a word for what became of a call of [Do] or [DoTx], fit for a metric label.
type DoOutcome string

// The outcomes.
const (
	DoRan      DoOutcome = "ran"       // the function ran, and its result is kept, or at least that it ran
	DoFailed   DoOutcome = "failed"    // the function ran and may run again: its error, or a transaction that was rolled back
	DoPanicked DoOutcome = "panicked"  // the function did not return; its outcome is unknown, or rolled back
	DoReplayed DoOutcome = "replayed"  // the result of an earlier run
	DoInFlight DoOutcome = "in_flight" // [ErrInFlight]: nothing was run
	DoConflict DoOutcome = "conflict"  // [ErrConflict]: nothing was run
	DoGivenUp  DoOutcome = "given_up"  // [ErrGivenUp]: nothing was run
	DoNoResult DoOutcome = "no_result" // [ErrNoResult] or [ErrResult]: done before, nothing was run
	DoUnknown  DoOutcome = "unknown"   // [ErrUnknownOutcome] of an earlier run, or of this one; [ErrUnknownCommit]
	DoLost     DoOutcome = "lost"      // the function ran, but another caller had taken the key over: [ErrClaimLost]
	DoError    DoOutcome = "error"     // nothing was run: the store could not be used, or the caller did not wait for it
)

// doWatch follows one call. A nil one is of a call that nobody watches.
type doWatch struct {
	key      Key
	tx       bool
	began    time.Time
	run      time.Time     // when the last run began. Zero: there was none
	ran      time.Duration // how long it took
	inside   bool          // it has not come to its end
	err      error         // that it returned
	unknown  bool          // nobody knows what it has done
	returned bool          // the call has come to its end
}

func newDoWatch(key Key, tx bool) *doWatch { return &doWatch{key: key, tx: tx, began: time.Now()} }

// begin is told when a run begins.
func (w *doWatch) begin() { w.run, w.inside, w.err, w.unknown = time.Now(), true, nil, false }

// end is told when it ends.
func (w *doWatch) end(err error) { w.ran, w.inside, w.err = time.Since(w.run), false, err }

// doubt is told that nobody knows what the last run has done.
func (w *doWatch) doubt() {
	if w != nil {
		w.unknown = true
	}
}

// tell tells what became of the call.
func (w *doWatch) tell(ctx context.Context, observe func(context.Context, DoEvent), replayed bool, err error) {
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
	case w.err != nil && errors.Is(err, w.err): // whatever it matches: it is the function's
		if w.unknown {
			return DoUnknown
		}
		return DoFailed
	}
	return w.outcomeOf(err)
}

// outcomeOf is the outcome of a call that failed, and not by its function.
func (w *doWatch) outcomeOf(err error) DoOutcome {
	ran := !w.run.IsZero()
	switch {
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrUnknownCommit):
		return DoUnknown
	case errors.Is(err, ErrClaimLost) && ran:
		return DoLost
	case errors.Is(err, ErrResult) && ran && !w.tx: // it has had its effect
		return DoRan
	case errors.Is(err, ErrInFlight):
		return DoInFlight
	case errors.Is(err, ErrConflict):
		return DoConflict
	case errors.Is(err, ErrGivenUp):
		return DoGivenUp
	case ran: // rolled back
		return DoFailed
	case errors.Is(err, ErrNoResult), errors.Is(err, ErrResult):
		return DoNoResult
	}
	return DoError
}
