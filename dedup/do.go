package dedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Do runs fn once for each key and replays the result to later callers, in any process, for the
// guard's retention. Of callers at the same time one runs fn; the others wait, and get the result
// or [ErrInFlight]. Do is safe for concurrent use.
//
// The result is kept as JSON. replayed reports that r was read from the store; fields that JSON
// does not carry are zero then. A result that is larger than the store keeps ([ResultLimiter]) is
// returned to the caller that ran fn, and later callers get [ErrNoResult]. If a result cannot be
// encoded, the caller that ran fn gets [ErrResult] beside r. [GuardConfig].Keyring encrypts
// results; one that cannot be opened is [ErrSealed].
//
// An error of fn is returned and not kept: fn may run again. After any other end the run may have
// had the effect, and later callers get [ErrUnknownOutcome], unless [GuardConfig].Rerun is set:
//
//   - the process died, fn panicked, or fn ended its goroutine;
//   - the claim was lost, or the store did not take the result for ten seconds;
//   - the error of fn matches ErrUnknownOutcome, or shows that its context ended.
//
// If only the write of the result failed, r is returned with an error. The error matches
// ErrUnknownOutcome, or [ErrClaimLost] if another caller took the key over. With any other error fn
// did not run: those of [Guard.Enter], such as [ErrUnavailable] if the store could not be used.
//
// The context of fn is that of the call. The loss of the claim cancels that context too.
func Do[R any](ctx context.Context, g *Guard, key Key, fn func(context.Context) (R, error),
	opts ...DoOption) (r R, replayed bool, err error) {
	if g.cfg.Observe == nil {
		return do(ctx, g, nil, key, fn, opts)
	}
	w := newDoWatch(key, false)
	defer func() { w.report(ctx, g.cfg.Observe, replayed, err) }() // also if fn panics
	r, replayed, err = do(ctx, g, w, key, func(ctx context.Context) (R, error) {
		w.beginRun()
		r, err := fn(ctx)
		w.endRun(err)
		return r, err
	}, opts)
	w.returned = true
	return r, replayed, err
}

// do implements Do. w may be nil.
func do[R any](ctx context.Context, g *Guard, w *doWatch, key Key,
	fn func(context.Context) (R, error), opts []DoOption) (r R, replayed bool, err error) {
	s := newDoSettings(key, opts)
	ctx = WithParent(ctx, key)
	for {
		entry, a, err := g.Enter(ctx, s.call)
		if err != nil {
			return r, false, err
		}
		switch {
		case entry == nil:
		case s.ofVersion():
			return runVersion(ctx, g, w, s, entry, a, fn)
		default:
			r, err = runEntry(ctx, g, w, s, doEntries{Entry: entry}, a, fn)
			return r, false, err
		}
		result, again, err := replay[R](s, a)
		if !again {
			return result, err == nil, err
		}
	}
}

// runEntry runs fn under a claim and ends the entry in any case.
func runEntry[R any](ctx context.Context, g *Guard, w *doWatch, s *doSettings, entry doEntries,
	a Answer, fn func(context.Context) (R, error)) (r R, err error) {
	if a.Verdict == Uncertain && !g.cfg.Rerun {
		_ = entry.Release(ctx, Unstarted) // if it does not arrive, the lease ends it
		return r, fmt.Errorf("%w: %q", ErrUnknownOutcome, s.call.Key)
	}
	if err := entry.Begin(ctx); err != nil {
		return r, err
	}
	ended := false
	defer func() {
		if !ended { // fn panicked or ended its goroutine
			_ = entry.Release(ctx, Unknown)
		}
	}()
	if r, err = fn(entry.Context()); err != nil {
		ended = true
		o := Failed
		if errors.Is(err, ErrUnknownOutcome) || cutShort(entry.Context(), err) {
			o = Unknown
			w.markUnknown()
		}
		_ = entry.Release(ctx, o) // if it does not arrive, the lease ends it: unknown outcome
		return r, err
	}
	result, err := s.encode(g, r)
	ended = true
	// Also without a result: fn has had its effect.
	return r, errors.Join(err, entry.Complete(ctx, result))
}

// cutShort reports whether err shows that ctx ended before the work did (rule 13).
func cutShort(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx)))
}

// encode returns the stored form of the function's result. After an error, or if the store cannot
// keep it, that is no result.
func (s *doSettings) encode(g *Guard, r any) (Result, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %q: %w", ErrResult, s.call.Key, err)
	}
	l, ok := g.store.(ResultLimiter)
	if ok && len(data)+g.cfg.Keyring.Overhead() > l.MaxResult() {
		return Result{}, nil
	}
	return Result{Schema: s.schema, Data: data}, nil
}

// replay returns the result of an earlier run from an answer without a claim. If again is true,
// the result is of another version, and s.call is now for the key of this version.
func replay[R any](s *doSettings, a Answer) (r R, again bool, err error) {
	key := s.call.Key
	switch a.Verdict {
	case Done:
	case Conflict:
		return r, false, fmt.Errorf("%w: %q", ErrConflict, key)
	case Dead:
		return r, false, fmt.Errorf("%w: %q: %s", ErrGivenUp, key, a.Reason)
	default: // Busy, or Rescheduled by a consumer
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
		// A key of its own, so that this version runs once however many callers find the other
		// result.
		s.useVersionKey()
		return r, true, nil
	}
	if err != nil {
		return *new(R), false, fmt.Errorf("%w: %q: %w", ErrResult, key, err)
	}
	return r, false, nil
}
