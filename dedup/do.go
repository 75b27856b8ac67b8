package dedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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
	// another door, or its result could not be encoded or was too large for the store.
	ErrNoResult = errors.New("done before, without a result to replay")
	// ErrResult says that a result could not be encoded, or that a kept one could not be read as the type that is asked for.
	// Change the schema when the type changes ([Schema]).
	ErrResult = errors.New("result cannot be read")
)

// DoOption is a setting of one call of [Do] or [DoTx].
type DoOption func(*doSettings)

type doSettings struct {
	call      Call
	schema    uint32
	versioned bool // the call is for the key of its schema
}

// Schema is the version of what the function returns; default 1. A kept result of another version is not served: the function
// runs again and has its effect again, once for each version, whatever the older release replays meanwhile.
func Schema(version uint32) DoOption { return func(s *doSettings) { s.schema = version } }

// SamePayload makes the call fail with [ErrConflict] if the key was used with another fingerprint. Zero, the default: not
// compared.
func SamePayload(f Fingerprint) DoOption { return func(s *doSettings) { s.call.Fingerprint = f } }

// KeepFor is the retention of the result, instead of that of the guard. Zero or less: that of the guard.
func KeepFor(d time.Duration) DoOption { return func(s *doSettings) { s.call.Retention = d } }

// WaitFor is the patience of the call, instead of that of the guard. Zero: that of the guard; negative: none.
func WaitFor(d time.Duration) DoOption { return func(s *doSettings) { s.call.Wait = d } }

func newDoSettings(key Key, opts []DoOption) *doSettings {
	s := &doSettings{call: Call{Key: key}, schema: 1}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Do runs fn once for each key and replays its result to later callers, in whatever process, for as long as the guard's
// retention. Of callers at the same time one runs fn; the others wait for it, and get its result or [ErrInFlight]. It is
// safe for concurrent use.
//
// The result is kept as JSON; replayed says that r was read from there, so fields that JSON does not carry are zero then. One
// that is larger than the store keeps ([ResultLimiter]) is returned to the caller who ran fn, and later ones are told
// [ErrNoResult]. One that cannot be encoded likewise, and the caller who ran fn is told [ErrResult] beside r.
//
// An error of fn is returned and not kept: it says that fn may run again. A run that ended otherwise may have had its effect,
// and later callers are told [ErrUnknownOutcome], unless [GuardConfig].Rerun. That is so if the process died, fn panicked or
// ended its goroutine, the claim was lost, the store did not take the result for ten seconds, or the error of fn says that
// its context ended or matches ErrUnknownOutcome. If only the last step failed, r is there together with an error that
// matches ErrUnknownOutcome, or [ErrClaimLost] if another caller took the key over.
//
// The context of fn is that of the call, and is cancelled too if the claim is lost. Any other error says that nothing was run:
// [ErrUnavailable] that the store could not be used, and those of [Guard.Enter].
func Do[R any](ctx context.Context, g *Guard, key Key, fn func(context.Context) (R, error), opts ...DoOption) (
	r R, replayed bool, err error) {
	if g.cfg.Observe == nil {
		return do(ctx, g, nil, key, fn, opts)
	}
	w := newDoWatch(key, false)
	defer func() { w.tell(ctx, g.cfg.Observe, replayed, err) }() // also if fn panics
	r, replayed, err = do(ctx, g, w, key, func(ctx context.Context) (R, error) {
		w.begin()
		r, err := fn(ctx)
		w.end(err)
		return r, err
	}, opts)
	w.returned = true
	return r, replayed, err
}

// do is Do. w may be nil.
func do[R any](ctx context.Context, g *Guard, w *doWatch, key Key, fn func(context.Context) (R, error), opts []DoOption) (
	r R, replayed bool, err error) {
	s := newDoSettings(key, opts)
	ctx = WithParent(ctx, key)
	for {
		entry, a, err := g.Enter(ctx, s.call)
		if err != nil {
			return r, false, err
		}
		if entry != nil {
			r, err = runEntry(ctx, g, w, s, entry, a, fn)
			return r, false, err
		}
		kept, again, err := read[R](s, a)
		if !again {
			return kept, err == nil, err
		}
	}
}

// runEntry runs fn under a claim and ends it in any case.
func runEntry[R any](ctx context.Context, g *Guard, w *doWatch, s *doSettings, entry *Entry, a Answer,
	fn func(context.Context) (R, error)) (r R, err error) {
	if a.Verdict == Uncertain && !g.cfg.Rerun {
		_ = entry.Release(ctx, Unstarted) // if it does not arrive, the lease ends it
		return r, fmt.Errorf("%w: %q", ErrUnknownOutcome, s.call.Key)
	}
	if err := entry.Begin(ctx); err != nil {
		return r, err
	}
	ended := false
	defer func() {
		if !ended { // a panic, or the goroutine ends: nobody knows
			_ = entry.Release(ctx, Unknown)
		}
	}()
	if r, err = fn(entry.Context()); err != nil {
		ended = true
		o := Failed
		if errors.Is(err, ErrUnknownOutcome) || cutShort(entry.Context(), err) {
			o = Unknown
			w.doubt()
		}
		_ = entry.Release(ctx, o) // if it does not arrive, the lease ends it, and the outcome counts as unknown
		return r, err
	}
	result, err := s.result(g.store, r)
	ended = true
	return r, errors.Join(err, entry.Complete(ctx, result)) // also without a result: fn has had its effect
}

// cutShort reports whether err says that ctx ended before the work was through (rule 13).
func cutShort(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Cause(ctx)))
}

// result encodes what fn returned. With an error, or if the store cannot keep it, it is none.
func (s *doSettings) result(store Store, r any) (Result, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %q: %w", ErrResult, s.call.Key, err)
	}
	if l, ok := store.(ResultLimiter); ok && len(data) > l.MaxResult() {
		return Result{}, nil
	}
	return Result{Schema: s.schema, Data: data}, nil
}

// read takes the result of an earlier run from an answer without a claim. again says that it is of another version, and that
// the call is now for a key of this one.
func read[R any](s *doSettings, a Answer) (r R, again bool, err error) {
	key := s.call.Key
	switch a.Verdict {
	case Done:
	case Conflict:
		return r, false, fmt.Errorf("%w: %q", ErrConflict, key)
	case Dead:
		return r, false, fmt.Errorf("%w: %q: %s", ErrGivenUp, key, a.Reason)
	default: // Busy; Rescheduled: a consumer has it
		return r, false, fmt.Errorf("%w: %q", ErrInFlight, key)
	}
	switch {
	case a.Result.IsZero():
		return r, false, fmt.Errorf("%w: %q", ErrNoResult, key)
	case a.Result.Schema == s.schema:
		err = json.Unmarshal(a.Result.Data, &r)
	case s.versioned:
		err = fmt.Errorf("version %d under the key of version %d", a.Result.Schema, s.schema)
	default:
		// A key of its own, so that this version runs once however many callers find the older result.
		s.call.Key.ID, s.versioned = Hash("schema", strconv.FormatUint(uint64(s.schema), 10), key.ID), true
		return r, true, nil
	}
	if err != nil {
		return *new(R), false, fmt.Errorf("%w: %q: %w", ErrResult, key, err)
	}
	return r, false, nil
}
