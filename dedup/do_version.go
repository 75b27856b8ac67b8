package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// How a version runs once within its retention:
//
// The first version has its result under the key itself. Each other version has its result under a
// key of its own, and a call asks for that key first. The two records expire at different times. If
// the version's result were found by way of the key, its end would be that of the key's record, and
// the version would run again. For the same reason a result of another version never stays under
// the key itself: the first version would have to look for its own result elsewhere.
//
// A call that is granted the key of its version asks for the key itself before it runs:
//
//   - A result of this version may be there: from Guard.Enter, EnterTx or an earlier release.
//   - A run of another version may go on, be in doubt, be dead, or have another payload. All of
//     that counts for every version.
//
// Do holds both keys while fn runs, so that versions run one after the other. Only the holder of a
// version's key asks for the key itself. No call waits the other way round, so there is no
// deadlock. Calls of the first version never ask for a second key, unless Guard.Enter or an earlier
// release kept another version's result under the key itself.
//
// A transaction cannot wait for two keys without a connection that is held meanwhile. So DoTx only
// looks at the key itself, in a transaction that is rolled back. Two versions may run at the same
// time then, each in its own transaction and once.

// doEntries are the keys that a run of [Do] holds.
type doEntries struct {
	*Entry
	first *Entry // of the key itself, while Entry is that of a version; nil: not held
}

// Context returns a context that ends with the loss of any of the keys.
func (e doEntries) Context() context.Context {
	if e.first != nil {
		return e.first.Context() // derived from the other one
	}
	return e.Entry.Context()
}

// Begin is [Entry.Begin].
func (e doEntries) Begin(ctx context.Context) error {
	err := e.Entry.Begin(ctx)
	if e.first == nil {
		return err
	}
	if err != nil {
		_ = e.first.Release(ctx, Unstarted)
		return err
	}
	if err := e.first.Begin(ctx); err != nil {
		_ = e.Entry.Release(ctx, Unstarted)
		return err
	}
	return nil
}

// Release is [Entry.Release] for all keys. The error is that of the first.
func (e doEntries) Release(ctx context.Context, o Outcome) error {
	if e.first == nil {
		return e.Entry.Release(ctx, o)
	}
	var both sync.WaitGroup
	both.Go(func() { _ = e.first.Release(ctx, o) })
	defer both.Wait()
	return e.Entry.Release(ctx, o)
}

// Complete is [Entry.Complete] for the version. The key itself is given back afterwards, for the
// first version. If the result was not kept, the lease ends the key itself, in doubt.
func (e doEntries) Complete(ctx context.Context, r Result) error {
	err := e.Entry.Complete(ctx, r)
	switch {
	case e.first == nil:
	case err == nil:
		_ = e.first.Release(ctx, Unstarted)
	default:
		e.first.abandon()
	}
	return err
}

// runVersion runs fn under the key of its version, which entry holds, if the key itself allows it.
func runVersion[R any](ctx context.Context, g *Guard, w *doWatch, s *doSettings, entry *Entry,
	a Answer, fn func(context.Context) (R, error)) (r R, replayed bool, err error) {
	passedOn := false
	defer func() {
		if !passedOn { // Nothing ran. The payload was perhaps never compared, so it is not kept.
			_ = entry.Release(ctx, Undone)
		}
	}()
	if a.Verdict == Uncertain && !g.cfg.Rerun {
		return r, false, fmt.Errorf("%w: %q", ErrUnknownOutcome, s.call.Key)
	}
	key := s.ofKey()
	first, b, err := g.Enter(entry.Context(), key.call)
	switch {
	case err != nil:
		return r, false, err
	case first == nil:
		if result, run, err := replay[R](key, b); !run {
			return result, err == nil, err
		}
	case b.Verdict == Uncertain && !g.cfg.Rerun:
		_ = first.Release(ctx, Unstarted)
		return r, false, fmt.Errorf("%w: %q", ErrUnknownOutcome, s.key)
	}
	passedOn = true
	r, err = runEntry(ctx, g, w, s, doEntries{Entry: entry, first: first}, a, fn)
	return r, false, err
}

// errLookFirst rolls the transaction of a version back: the key itself was not asked for yet.
var errLookFirst = errors.New("look at the key itself first")

// lookTx asks for the key itself and gives it back. If run is true, the version may run; else the
// call ends with the other results.
func lookTx[R, Tx any](ctx context.Context, g *Guard, key *doSettings, limit time.Duration) (
	r R, run bool, err error) {
	a, err := EnterTx(ctx, g, key.call, limit,
		func(Tx) (Result, error) { return Result{}, errLookFirst })
	switch {
	case errors.Is(err, errLookFirst):
		return r, true, nil
	case err != nil:
		return r, false, err
	}
	return replay[R](key, a)
}
