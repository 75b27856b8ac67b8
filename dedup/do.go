package dedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The errors of [Do] and [DoTx].
var (
	// ErrInFlight says that another caller still runs the function when the patience of this one is over: try again later.
	ErrInFlight = errors.New("another caller is still at work on this key")
	// ErrUnknownOutcome says that an earlier run was cut short and may have had its effect, and that nobody can tell. Nothing
	// was run. Find out what happened, then release the key (idem event release) or give it up (idem event skip).
	//
	// A function that returns an error which matches it leaves its own outcome unknown.
	ErrUnknownOutcome = errors.New("outcome of an earlier run unknown")
	// ErrConflict says that the key was used with another payload.
	ErrConflict = errors.New("key was used with another payload")
	// ErrGivenUp says that a person has given the key up.
	ErrGivenUp = errors.New("key was given up")
	// ErrNoResult says that the function ran before, but that nothing was kept to be replayed: the key was handled through
	// another door, or its result was too large for the ledger.
	ErrNoResult = errors.New("done before, without a result to replay")
	// ErrResult says that a kept result could not be read as the type that is asked for. Change the schema when the type changes
	// ([Schema]).
	ErrResult = errors.New("result cannot be read")
)

// DoOption is a setting of one call of [Do] or [DoTx].
type DoOption func(*doSettings)

type doSettings struct {
	call   Call
	schema uint32
}

// Schema is the version of what the function returns; default 1. A kept result of another version is not served: the function
// runs again, once for each version, whatever the older release replays meanwhile.
func Schema(version uint32) DoOption { return func(s *doSettings) { s.schema = version } }

// SamePayload makes the call fail with [ErrConflict] if the key was used with another fingerprint.
func SamePayload(f Fingerprint) DoOption { return func(s *doSettings) { s.call.Fingerprint = f } }

// KeepFor is the retention of the result, instead of that of the guard.
func KeepFor(d time.Duration) DoOption { return func(s *doSettings) { s.call.Retention = d } }

// WaitFor is the patience of the call, instead of that of the guard. Negative: none.
func WaitFor(d time.Duration) DoOption { return func(s *doSettings) { s.call.Wait = d } }

func newDoSettings(key Key, opts []DoOption) *doSettings {
	s := &doSettings{call: Call{Key: key}, schema: 1}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Do runs fn once for each key and replays its result to later callers, in whatever process, for as long as the guard's retention. Of
// callers at the same time one runs fn; the others wait for it, and get its result or [ErrInFlight].
//
// The result is kept as JSON; replayed says that r was read from there, so fields that JSON does not carry are zero then. An error of
// fn is returned and not kept: it says that fn may run again. A run that ended otherwise (the process died, fn panicked, the claim
// was lost, the ledger did not take the result for ten seconds, or the error of fn matches [ErrUnknownOutcome]) may have had
// its effect: later callers are told ErrUnknownOutcome, unless [GuardConfig].Rerun. If only the last step failed, r is there
// together with that error.
//
// The context of fn is cancelled if the claim is lost. Errors of the ledger match [ErrUnavailable]: nothing was run.
func Do[R any](ctx context.Context, g *Guard, key Key, fn func(context.Context) (R, error), opts ...DoOption) (r R, replayed bool, err error) {
	s := newDoSettings(key, opts)
	for {
		entry, a, err := g.Enter(ctx, s.call)
		if err != nil {
			return r, false, err
		}
		if entry != nil {
			r, err = runEntry(ctx, g, s, entry, a, fn)
			return r, false, err
		}
		again, err := s.read(a, &r)
		if !again {
			return r, err == nil, err
		}
	}
}

// runEntry runs fn under a claim and ends it in any case.
func runEntry[R any](ctx context.Context, g *Guard, s *doSettings, entry *Entry, a Answer, fn func(context.Context) (R, error)) (r R, err error) {
	if a.Verdict == Uncertain && !g.cfg.Rerun {
		_ = entry.Release(ctx, Unstarted) // if it does not arrive, the lease ends it
		return r, fmt.Errorf("%w: %s", ErrUnknownOutcome, s.call.Key)
	}
	returned := false
	defer func() {
		if !returned { // a panic, or the goroutine ends: nobody knows
			_ = entry.Release(ctx, Unknown)
		}
	}()
	r, err = fn(entry.Context())
	returned = true
	if err != nil {
		o := Failed
		if errors.Is(err, ErrUnknownOutcome) {
			o = Unknown
		}
		_ = entry.Release(ctx, o) // if it does not arrive, the lease ends it, and the outcome counts as unknown
		return r, err
	}
	result, err := s.result(r)
	if err != nil { // fn has had its effect
		return r, errors.Join(err, entry.Complete(ctx, Result{}))
	}
	return r, entry.Complete(ctx, result)
}

// result encodes what fn returned.
func (s *doSettings) result(r any) (Result, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrResult, err)
	}
	return Result{Schema: s.schema, Data: data}, nil
}

// read takes the result of an earlier run from an answer without a claim. again says that it is of another version, and that the
// call is now for a key of this one.
func (s *doSettings) read(a Answer, into any) (again bool, err error) {
	key := s.call.Key
	switch a.Verdict {
	case Done:
	case Conflict:
		return false, fmt.Errorf("%w: %s", ErrConflict, key)
	case Dead:
		return false, fmt.Errorf("%w: %s: %s", ErrGivenUp, key, a.Reason)
	default: // Busy; Moved: a consumer has it
		return false, fmt.Errorf("%w: %s", ErrInFlight, key)
	}
	switch {
	case a.Result.IsZero():
		return false, fmt.Errorf("%w: %s", ErrNoResult, key)
	case a.Result.Schema != s.schema:
		// A key of its own, so that this version runs once however many callers find the older result.
		s.call.Key.ID = Hash("schema", fmt.Sprint(s.schema), key.ID)
		return true, nil
	}
	if err := json.Unmarshal(a.Result.Data, into); err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrResult, key, err)
	}
	return false, nil
}
