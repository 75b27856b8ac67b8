package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// DoTx is [Do] with claim, effects and result in one transaction: fn's statements and the result become visible together, or
// not at all, and no run leaves its outcome unknown. An error of fn rolls all of it back, and so does a result that cannot be
// encoded. limit is how long fn may take, as in [TxStore].ClaimTx.
//
// If the connection is lost while committing, the store is asked what happened. If it does not answer, the error matches
// [ErrUnknownCommit] and [ErrUnavailable]: call again, and the answer is exact. The guard's store must be a [TxStore] of this
// kind of transaction.
func DoTx[R, Tx any](ctx context.Context, g *Guard, key Key, limit time.Duration,
	fn func(context.Context, Tx) (R, error), opts ...DoOption) (r R, replayed bool, err error) {
	if g.cfg.Observe == nil {
		return doTx(ctx, g, key, limit, fn, opts)
	}
	w := newDoWatch(key, true)
	defer func() { w.tell(ctx, g.cfg.Observe, replayed, err) }() // also if fn panics
	r, replayed, err = doTx(ctx, g, key, limit, func(ctx context.Context, tx Tx) (R, error) {
		w.begin()
		r, err := fn(ctx, tx)
		w.end(err)
		return r, err
	}, opts)
	w.returned = true
	return r, replayed, err
}

// doTx is DoTx.
func doTx[R, Tx any](ctx context.Context, g *Guard, key Key, limit time.Duration, fn func(context.Context, Tx) (R, error),
	opts []DoOption) (r R, replayed bool, err error) {
	s := newDoSettings(key, opts)
	ctx = WithParent(ctx, key)
	for {
		var ran R
		a, err := EnterTx(ctx, g, s.call, limit, func(tx Tx) (Result, error) {
			var err error
			if ran, err = fn(ctx, tx); err != nil {
				return Result{}, err
			}
			return s.result(g.store, ran)
		})
		if err != nil { // whatever fn returned was rolled back
			return r, false, err
		}
		if a.Verdict == Fresh {
			return ran, false, nil
		}
		kept, again, err := read[R](s, a)
		if !again {
			return kept, err == nil, err
		}
	}
}

// EnterTx runs fn in the transaction that claims the key, and keeps its result there. The answer is [Fresh] if fn ran and all
// of it is committed, Done with the result of an earlier run, or what else the store says, as in [Guard.Enter]. Nobody waits
// with a connection: of callers in this process one holds a transaction for a key, and one that finds another process at it
// gives the connection back before it waits (rule 20).
//
// An error of fn rolls back and is returned. fn may run more than once, after a rollback each time: after a serialization
// failure, when the connection was lost while committing and nothing had been committed, or when what it kept for the end of its
// transaction ([TxKeeper]) met a lock of somebody else. What runs in fn has the context of its caller: give it [WithParent] if
// it emits. limit is that of [TxStore].ClaimTx, and so are the errors; with one that matches [ErrUnknownCommit] all of it may be committed, and a later
// call tells. Without that, an error says that nothing is.
func EnterTx[Tx any](ctx context.Context, g *Guard, c Call, limit time.Duration, fn func(tx Tx) (Result, error)) (
	Answer, error) {
	store, ok := g.store.(TxStore[Tx])
	if !ok {
		return Answer{}, fmt.Errorf("%T has no transactions of the type %T: use a store of the database that the effects are in",
			g.store, *new(Tx))
	}
	e := txEntry[Tx]{g: g, store: store, limit: limit, req: g.request(c)}
	a, f, err := g.enter(ctx, c, func(f *inflightCall) (Answer, bool, error) {
		a, err := e.ask(c.work(ctx), func(tx Tx) (Result, error) {
			g.publish(f, true)
			return fn(tx)
		})
		return a, err == nil && a.Verdict == Fresh, err
	})
	switch {
	case f != nil:
		g.finish(c.Key, f, Answer{Verdict: Done, Result: e.ran, First: a.First}, nil)
		a.Result = e.ran
	case e.doubt != nil && (err != nil || a.Verdict == Busy) && !errors.Is(err, ErrUnknownCommit):
		return Answer{}, errors.Join(e.doubt, err) // nothing hides the doubt until the store has answered
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

// ask claims, runs fn and commits. After a commit whose outcome is unknown it asks again (P-11).
func (e *txEntry[Tx]) ask(ctx context.Context, fn func(Tx) (Result, error)) (Answer, error) {
	for try := 1; ; try++ {
		var answers [1]Answer
		err := e.claim(ctx, answers[:], func(tx Tx) (_ []Completion, err error) {
			e.doubt = nil // Fresh: an earlier commit did not happen
			if e.ran, err = fn(tx); err != nil {
				return nil, err
			}
			return []Completion{{Claim: e.req.Held(Token{}, answers[0]), Retention: e.req.Retention, Result: e.ran}}, nil
		})
		if err == nil {
			return answers[0], nil
		}
		if errors.Is(err, ErrUnknownCommit) {
			e.doubt = err
		}
		if e.doubt == nil || try == askTries || backOff(ctx, try) != nil {
			return Answer{}, err
		}
	}
}

// claim is ClaimTx, which is given up if the store does not come to fn in time. A store of transactions heeds its context; if it does not,
// fn is refused.
func (e *txEntry[Tx]) claim(ctx context.Context, answers []Answer, fn func(Tx) ([]Completion, error)) error {
	calls := e.g.calls
	calls.tx.Store(true)
	end, err := calls.begin()
	if err != nil {
		return fmt.Errorf("claim %q: %w", e.req.Key, err)
	}
	begun := false
	tell := func(c callEnd) {
		if !begun {
			end(c)
		}
		begun = true
	}
	defer tell(callUnknown) // if the store panics
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(context.Canceled)
	clock := startClaimClock(calls, cancel)
	defer clock.stop()
	err = e.store.ClaimTx(context.WithValue(bounded, claimClockKey{}, clock), e.limit, []Request{e.req}, answers, func(tx Tx) ([]Completion, error) {
		if !clock.stop() {
			return nil, errNoAnswer
		}
		tell(callAnswered)
		calls.inside.Add(1)
		defer calls.inside.Add(-1)
		return fn(tx)
	})
	switch {
	case begun:
	case err != nil && errors.Is(context.Cause(bounded), errNoAnswer):
		err = fmt.Errorf("claim %q: %w (%w)", e.req.Key, errNoAnswer, err)
		fallthrough
	default:
		ended := endOf(ctx, err)
		if calls.inside.Load() > 0 && clock.connecting() {
			ended = callUnknown // transactions that are under way may hold all connections, and the database is there
		}
		tell(ended)
	}
	return err
}

// connectionWait is how long a transaction waits for a connection of its pool. Others that hold one may be slow while the database is well.
const connectionWait = 10 * time.Second

// ClaimBegins tells the guard that called [TxStore].ClaimTx with ctx that the store has a connection and asks now: from here on the time of
// [GuardConfig].StoreTimeout counts. Without it ten seconds are waited for the function to begin. Elsewhere it does nothing.
func ClaimBegins(ctx context.Context) {
	if c, ok := ctx.Value(claimClockKey{}).(*claimClock); ok {
		c.asked()
	}
}

type claimClockKey struct{}

// claimClock cancels a ClaimTx that does not come to its function.
type claimClock struct {
	calls  *storeCalls
	cancel context.CancelCauseFunc
	began  time.Time

	mu       sync.Mutex
	timer    *time.Timer
	deadline time.Time // of the answer; zero: there is no connection yet
	over     bool      // it has cancelled
}

func startClaimClock(calls *storeCalls, cancel context.CancelCauseFunc) *claimClock {
	c := &claimClock{calls: calls, cancel: cancel, began: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(calls.limit, c.tick)
	return c
}

func (c *claimClock) asked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline.IsZero() && !c.over {
		c.deadline = time.Now().Add(c.calls.limit)
		c.timer.Reset(c.calls.limit)
	}
}

// tick gives up, or looks again later: who waits for a connection learns here that others have found the database silent.
func (c *claimClock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait := time.Until(c.deadline)
	if c.deadline.IsZero() {
		wait = min(c.calls.limit, time.Until(c.began.Add(connectionWait)))
		if c.calls.breaker.open() {
			wait = 0
		}
	}
	if wait > 0 {
		c.timer.Reset(wait)
		return
	}
	c.over = true
	c.cancel(errNoAnswer)
}

// stop ends the clock. It reports whether there was time left.
func (c *claimClock) stop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	return !c.over
}

// connecting reports whether a connection was waited for all the time that there is for it.
func (c *claimClock) connecting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline.IsZero() && time.Since(c.began) >= connectionWait
}
