package idemtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

// gate is the way of one process to the store.
type gate struct {
	dedup.Store
	p *process
}

// deferring returns a store that claims to be a [dedup.Deferrer].
func (g gate) deferring() dedup.Store {
	return struct {
		gate
		dedup.Deferrer
	}{gate: g}
}

// enter is reached before and after each call. The error is that of a server that cannot be
// reached.
//
// A call whose time is over is no point, since its caller has gone on.
func (g gate) enter(ctx context.Context, what string) error {
	g.p.wait()
	return g.at(what, ctx.Err() == nil)
}

// at is reached at a moment that may be a point. How often the others happen is chance.
func (g gate) at(what string, isPoint bool) error {
	if err := g.p.at(what, false, isPoint && g.p.numbered); err != nil {
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return nil
}

// ask is enter before a claim, and a point unless the latest answer was busy.
func (g gate) ask(ctx context.Context, what, ids string) error {
	if _, busy := g.p.busy.Load(ids); !busy {
		return g.enter(ctx, what)
	}
	return g.at(what, false)
}

// answered is enter after a claim, and a point unless the latest answers were busy and the same.
func (g gate) answered(ctx context.Context, what, ids string, answers []dedup.Answer) error {
	texts := verdicts(answers)
	latest, _ := g.p.busy.Load(ids)
	if what += ids + ": " + texts; latest == texts {
		return g.at(what, false)
	}
	g.p.busy.Delete(ids)
	if slices.ContainsFunc(answers, func(a dedup.Answer) bool { return a.Verdict == dedup.Busy }) {
		g.p.busy.Store(ids, texts)
	}
	return g.enter(ctx, what)
}

func idsOf(reqs []dedup.Request) string {
	ids := make([]string, len(reqs))
	for i := range reqs {
		ids[i] = reqs[i].Key.ID
	}
	return strings.Join(ids, ", ")
}

// Claim implements [dedup.Store].
func (g gate) Claim(
	ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer,
) error {
	g.p.f.leased(lease)
	ids := idsOf(reqs)
	if err := g.ask(ctx, "claims "+ids+before, ids); err != nil {
		return err
	}
	if err := g.Store.Claim(ctx, t, lease, reqs, answers); err != nil {
		return err
	}
	return g.answered(ctx, "claims ", ids, answers)
}

func verdicts(answers []dedup.Answer) string {
	texts := make([]string, len(answers))
	for i := range answers {
		texts[i] = answers[i].Verdict.String()
	}
	return strings.Join(texts, ", ")
}

// Renew implements [dedup.Store]. It is no point, since its time is not that of an event.
func (g gate) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	g.p.f.leased(lease)
	g.p.wait()
	if g.p.isDead() {
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, errDead)
	}
	return g.Store.Renew(ctx, lease, claims)
}

// Complete implements [dedup.Store].
func (g gate) Complete(ctx context.Context, done []dedup.Completion) error {
	if err := g.enter(ctx, "records the completion"+before); err != nil {
		return err
	}
	if err := g.Store.Complete(ctx, done); err != nil {
		return err
	}
	return g.enter(ctx, "records the completion")
}

// Release implements [dedup.Store].
func (g gate) Release(ctx context.Context, claims []dedup.Release) error {
	g.p.wait()
	// After a pause, a claim that was granted too late may be released at any time.
	if err := g.at("releases the claim"+before, !g.p.stood.Load()); err != nil {
		return err
	}
	return g.Store.Release(ctx, claims)
}

// gateTx is the way to a store with transactions.
type gateTx[Tx any] struct {
	gate
	store dedup.TxStore[Tx]
}

// deferring is that of gate, with transactions.
func (g gateTx[Tx]) deferring() dedup.Store {
	return struct {
		gateTx[Tx]
		dedup.Deferrer
	}{gateTx: g}
}

// ClaimTx implements [dedup.TxStore].
func (g gateTx[Tx]) ClaimTx(
	ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(Tx) ([]dedup.Completion, error),
) error {
	ids := idsOf(reqs)
	if err := g.ask(ctx, "begins the transaction of "+ids, ids); err != nil {
		return err
	}
	var left chan struct{} // closed when the code of the transaction has ended
	err := g.store.ClaimTx(ctx, limit, reqs, answers, func(tx Tx) ([]dedup.Completion, error) {
		left = make(chan struct{})
		return g.handle(left, func() ([]dedup.Completion, error) {
			if err := g.answered(ctx, "has claimed ", ids, answers); err != nil {
				return nil, err
			}
			done, err := fn(tx)
			if err == nil {
				err = g.enter(ctx, "commits the transaction"+before)
			}
			return done, err
		})
	})
	if left != nil && g.p.isDead() {
		// ClaimTx must not return while its code still runs, and that code waits for the end of the
		// run.
		<-g.p.f.over
		<-left
	}
	switch {
	case err != nil:
		return err
	case left == nil:
		return g.answered(ctx, "has no claim of ", ids, answers)
	}
	if err := g.enter(ctx, "commits the transaction"); err != nil {
		return errors.Join(dedup.ErrUnknownCommit, err)
	}
	return nil
}

// handle runs fn, and leaves it at the death of the process. The store then closes the connection,
// and the database rolls back. The end of fn closes left.
func (g gate) handle(left chan<- struct{}, fn func() ([]dedup.Completion, error)) ([]dedup.Completion, error) {
	type result struct {
		done  []dedup.Completion
		err   error
		panic any
	}
	ended := make(chan result, 1)
	go func() {
		r := result{err: errors.New("idemtest: the handler ended its goroutine")}
		defer close(left)
		defer func() {
			r.panic = recover()
			ended <- r
		}()
		r.done, r.err = fn()
	}()
	select {
	case r := <-ended:
		if r.panic != nil {
			panic(r.panic) // on the goroutine of the store
		}
		return r.done, r.err
	case <-g.p.died:
		return nil, fmt.Errorf("%w: %w", dedup.ErrAbandoned, errDead)
	}
}
