package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DoTx is [Do] with claim, effects and result in one transaction: fn's statements and the result become visible together, or
// not at all, and no outcome stays unknown. An error of fn rolls all of it back. limit is how long fn may take.
//
// If the connection is lost while committing, the ledger is asked what happened. The guard's store must be a [TxStore] of this
// kind of transaction.
func DoTx[R, Tx any](ctx context.Context, g *Guard, key Key, limit time.Duration, fn func(context.Context, Tx) (R, error), opts ...DoOption) (r R, replayed bool, err error) {
	s := newDoSettings(key, opts)
	for {
		a, err := EnterTx(ctx, g, s.call, limit, func(tx Tx) (Result, error) {
			var err error
			if r, err = fn(ctx, tx); err != nil {
				return Result{}, err
			}
			return s.result(r)
		})
		if err != nil {
			return r, false, err
		}
		if a.Verdict == Fresh {
			return r, false, nil
		}
		r = *new(R) // of a run that was rolled back, or is read again
		again, err := s.read(a, &r)
		if !again {
			return r, err == nil, err
		}
	}
}

// EnterTx runs fn in the transaction that claims the key, and keeps its result there. The answer is [Fresh] if fn ran and all of it
// is committed, Done with the result of an earlier run, or what else the ledger says, as in [Guard.Enter]. Nobody waits with a
// connection: of callers in this process one holds a transaction for a key, and one that finds another process at it gives the
// connection back before it waits (rule 20).
//
// An error of fn rolls back and is returned. fn may run more than once, after a rollback each time: after a serialization failure, or when
// the connection was lost while committing and nothing had been. limit is that of [TxStore].ClaimTx.
func EnterTx[Tx any](ctx context.Context, g *Guard, c Call, limit time.Duration, fn func(tx Tx) (Result, error)) (Answer, error) {
	store, ok := g.store.(TxStore[Tx])
	if !ok {
		return Answer{}, fmt.Errorf("%T has no transactions of the type %T: use a ledger of the database that the effects are in", g.store, *new(Tx))
	}
	req := g.request(c)
	var ran Result
	a, f, err := g.enter(ctx, c, func() (a Answer, kept bool, err error) {
		for try := 1; ; try++ {
			var answers [1]Answer
			err = store.ClaimTx(c.work(ctx), limit, []Request{req}, answers[:], func(tx Tx) ([]Completion, error) {
				var err error
				if ran, err = fn(tx); err != nil {
					return nil, err
				}
				return []Completion{{Claim: req.Held(Token{}, answers[0]), Retention: req.Retention, Result: ran}}, nil
			})
			if !errors.Is(err, ErrUnknownCommit) || try == askTries {
				return answers[0], err == nil && answers[0].Verdict == Fresh, err
			}
			if sleep(ctx, min(time.Second, 20*time.Millisecond<<try)) != nil {
				return Answer{}, false, err
			}
		}
	})
	if f != nil {
		g.land(c.Key, f, Answer{Verdict: Done, Result: ran, First: a.First})
		a.Result = ran
	}
	return a, err
}
