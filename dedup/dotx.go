package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DoTx is [Do] with claim, effects and result in one transaction. The statements of fn and the
// result become visible together, or not at all. No run leaves its outcome unknown. An error of
// fn rolls back, and so does a result that cannot be encoded. limit is how long fn may take, as
// in [TxStore.ClaimTx].
//
// If the connection is lost during COMMIT, the store is asked for the outcome. Without an answer,
// the error matches [ErrUnknownCommit] and [ErrUnavailable]: call again, and the answer is exact.
//
// The guard's store must be a [TxStore] of this type of transaction.
func DoTx[R, Tx any](ctx context.Context, g *Guard, key Key, limit time.Duration,
	fn func(context.Context, Tx) (R, error), opts ...DoOption) (r R, replayed bool, err error) {
	if g.cfg.Observe == nil {
		return doTx(ctx, g, key, limit, fn, opts)
	}
	w := newDoWatch(key, true)
	defer func() { w.report(ctx, g.cfg.Observe, replayed, err) }() // also if fn panics
	r, replayed, err = doTx(ctx, g, key, limit, func(ctx context.Context, tx Tx) (R, error) {
		w.beginRun()
		r, err := fn(ctx, tx)
		w.endRun(err)
		return r, err
	}, opts)
	w.returned = true
	return r, replayed, err
}

// doTx implements DoTx.
func doTx[R, Tx any](ctx context.Context, g *Guard, key Key, limit time.Duration,
	fn func(context.Context, Tx) (R, error), opts []DoOption) (r R, replayed bool, err error) {
	s := newDoSettings(key, opts)
	ctx = WithParent(ctx, key)
	mayRun := !s.ofVersion()
	for {
		var ran R
		a, err := EnterTx(ctx, g, s.call, limit, func(tx Tx) (Result, error) {
			if !mayRun {
				return Result{}, errLookFirst
			}
			var err error
			if ran, err = fn(ctx, tx); err != nil {
				return Result{}, err
			}
			return s.encode(g, ran)
		})
		switch {
		case errors.Is(err, errLookFirst):
			if r, mayRun, err = lookTx[R, Tx](ctx, g, s.ofKey(), limit); !mayRun {
				return r, err == nil, err
			}
			continue
		case err != nil: // the effects of fn were rolled back
			return r, false, err
		case a.Verdict == Fresh:
			return ran, false, nil
		}
		result, again, err := replay[R](s, a)
		if !again {
			return result, err == nil, err
		}
	}
}

// EnterTx runs fn in the transaction that claims the key, and keeps the result there. The answer is
// [Fresh] if fn ran and its transaction is committed, Done with the result of an earlier run, or
// another verdict as in [Guard.Enter].
//
// A caller that waits holds no connection. Of the callers of a key in this process one has a
// transaction. If another process holds the key, the connection is returned before the wait.
//
// fn may run more than once, each time after a rollback. Causes are a serialization failure, a lost
// commit that had not happened, and kept work ([TxKeeper]) that met another transaction's lock. The
// function has no context of its own: use one of [WithParent] if fn emits events.
//
// limit is that of [TxStore.ClaimTx], and so are the errors. An error of fn rolls back and is
// returned. After [ErrUnknownCommit] the transaction may be committed, and a later call returns the
// result. After any other error the transaction is not committed.
func EnterTx[Tx any](ctx context.Context, g *Guard, c Call, limit time.Duration,
	fn func(tx Tx) (Result, error)) (Answer, error) {
	store, ok := g.store.(TxStore[Tx])
	if !ok {
		return Answer{}, fmt.Errorf("%T has no transactions of the type %T: "+
			"use a store in the database of the effects", g.store, *new(Tx))
	}
	e := txEntry[Tx]{g: g, store: store, limit: limit, req: g.request(c)}
	a, f, err := g.enter(ctx, c, func(f *inflightCall) (Answer, bool, error) {
		a, err := e.ask(c.work(ctx), func(tx Tx) (Result, error) {
			g.inflight.publish(f, true)
			return fn(tx)
		})
		return a, err == nil && a.Verdict == Fresh, err
	})
	switch {
	case f != nil:
		g.inflight.finish(c.Key, f, Answer{Verdict: Done, Result: e.ran, First: a.First}, nil)
		a.Result = e.ran
	case e.doubt != nil && (err != nil || a.Verdict == Busy) && !errors.Is(err, ErrUnknownCommit):
		return Answer{}, errors.Join(e.doubt, err) // the doubt stays until the store has answered
	}
	return a, err
}

// txEntry is one call of EnterTx.
type txEntry[Tx any] struct {
	g     *Guard
	store TxStore[Tx]
	limit time.Duration
	req   Request
	ran   Result // of the last run
	doubt error  // of the last commit, if it may have happened
}

// ask claims, runs fn and commits. After a commit with an unknown outcome, ask asks again
// (P-11).
func (e *txEntry[Tx]) ask(ctx context.Context, fn func(Tx) (Result, error)) (Answer, error) {
	for try := 1; ; try++ {
		var answers [1]Answer
		err := e.claim(ctx, answers[:], func(tx Tx) (_ []Completion, err error) {
			e.doubt = nil // Fresh: an earlier commit did not happen
			if e.ran, err = fn(tx); err != nil {
				return nil, err
			}
			sealed, err := e.g.cfg.Keyring.Seal(e.req.Key, e.ran)
			if err != nil {
				return nil, err
			}
			return []Completion{{
				Claim: e.req.Held(Token{}, answers[0]), Retention: e.req.Retention, Result: sealed,
			}}, nil
		})
		if err == nil {
			if answers[0].Verdict == Done {
				e.doubt = nil
			}
			err = e.g.open(e.req.Key, &answers[0])
			return answers[0], err
		}
		if errors.Is(err, ErrUnknownCommit) {
			e.doubt = err
		}
		if e.doubt == nil || try == askTries || backOff(ctx, try) != nil {
			return Answer{}, err
		}
	}
}

// claim calls ClaimTx and gives it up if the store does not call fn in time. A store of
// transactions heeds the context; else fn is refused.
func (e *txEntry[Tx]) claim(ctx context.Context, answers []Answer,
	fn func(Tx) ([]Completion, error)) error {
	calls := e.g.calls
	calls.tx.Store(true)
	end, err := calls.begin()
	if err != nil {
		return fmt.Errorf("claim %q: %w", e.req.Key, err)
	}
	reported := false
	report := func(c callEnd) {
		if !reported {
			end(c)
		}
		reported = true
	}
	defer report(callUnknown) // if the store panics
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	clock := startClaimClock(calls, cancel)
	defer clock.halt()
	bounded = context.WithValue(bounded, claimClockKey{}, clock)
	err = e.store.ClaimTx(bounded, e.limit, []Request{e.req}, answers,
		func(tx Tx) ([]Completion, error) {
			if !clock.halt() {
				return nil, errNoAnswer
			}
			report(callAnswered)
			calls.inside.Add(1)
			defer calls.inside.Add(-1)
			return fn(tx)
		})
	switch {
	case reported:
	case err != nil && errors.Is(context.Cause(bounded), errNoAnswer):
		err = fmt.Errorf("claim %q: %w (%w)", e.req.Key, errNoAnswer, err)
		fallthrough
	default:
		ended := endOf(ctx, err)
		if calls.inside.Load() > 0 && clock.withoutConnection() {
			ended = callUnknown // other transactions may hold all connections of a sound database
		}
		report(ended)
	}
	return err
}
