package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// This file runs transactional handlers. Many events share a transaction. Only the events of a
// rolled-back transaction are taken apart, so no effect can happen twice (rule 2).

// txGroup is one such transaction.
type txGroup struct {
	group   *eventGroup
	reqs    []dedup.Request
	answers []dedup.Answer
	calls   []handlerCall // calls for the fresh events
	took    []time.Duration

	began    time.Time
	starts   uint32  // of the only event, with this one; 0: not counted
	lookOnly bool    // only look: an event of a new partition may kill the process
	unread   outcome // outcome of a fresh event that cannot be decoded
	ran      bool
	current  atomic.Int32 // index into calls
	deadline atomic.Int64 // of the current call; Unix nanoseconds
	checked  bool         // the transaction tells its state after each call
	failed   int          // index of the call that failed, or -1
	err      error        // result of that call, unchanged
	outcome  outcome      // outcome of that call
}

// runInTx claims the events of the group, runs those that are fresh, and commits, in one
// transaction.
func (g *eventGroup) runInTx() error {
	p, ctx := g.batch.p, g.ctx
	if g.single {
		if done, err := g.refuseBeforeTx(); done {
			return err
		}
	}
	if err := g.acquirePermit(); err != nil {
		return err
	}
	tg := &txGroup{group: g, failed: -1, lookOnly: !g.single && g.guarded()}
	defer func() { g.permit.End(tg.ran) }()
	tg.reqs, tg.answers = g.requests()
	hard, release := p.stopContext(ctx, false)
	defer release()
	// Wait before a start is counted: an end of the process meanwhile is no crash of the event.
	free, err := g.access.slot(hard, g.batch.budget)
	if err != nil {
		g.tasks[0].permit.End(false)
		return err
	}
	free = sync.OnceFunc(free)
	defer free() // also if an observer panics
	if g.single {
		if done, err := tg.countStart(ctx, free); done {
			return err
		}
	}
	tg.began = time.Now()
	err = tg.claim(hard)
	free() // the following steps need no connection
	if len(tg.calls) > 0 {
		g.endTurns()
	}
	looked := errors.Is(err, errLookOnly)
	if looked {
		err = nil
	} else if err == nil { // again: a store may answer Busy at the commit
		tg.keepAnswers()
	}
	tg.observe(ctx, looked, err)
	switch {
	case g.single:
		return tg.settleSingle(ctx, hard, err)
	case err != nil:
		g.failure = err
		return tg.rolledBack(hard, tg.began, err)
	}
	kind := callAsk
	if tg.ran && !looked {
		kind = callChange
	}
	g.access.succeeded(ctx, tg.began, kind)
	if looked {
		tg.settleKnown()
	} else {
		tg.committed()
	}
	return nil
}

// observe reports the transaction and its answers to observers.
func (tg *txGroup) observe(ctx context.Context, looked bool, err error) {
	p := tg.group.batch.p
	if !looked {
		tg.group.access.called(
			ctx, observe.VerbTransaction, len(tg.reqs), tg.answers, tg.began, err,
		)
	}
	for i, t := range tg.group.sorted {
		if !looked || t.isDuplicate() { // the other events were only looked at
			p.observeClaim(ctx, t, tg.answers[i].Verdict, tg.began, err)
		}
	}
}

// errLookOnly ends a transaction in which no handler runs.
var errLookOnly = errors.New("only looked")

// guarded reports whether the store counts starts and an event belongs to a newly assigned
// partition. Such events run one by one (rule 18). Known events are still settled together.
func (g *eventGroup) guarded() bool {
	if g.access.counter == nil {
		return false
	}
	topic, partition, last := "", int32(-1), false
	for _, t := range g.tasks {
		if t.message.Partition != partition || t.message.Topic != topic {
			topic, partition = t.message.Topic, t.message.Partition
			last = g.batch.p.guarded(t.message)
		}
		if last {
			return true
		}
	}
	return false
}

// settleKnown settles the known events. The first of the others run by themselves. After an event
// that cannot be decoded, the others still share a group.
func (tg *txGroup) settleKnown() {
	b := tg.group.batch
	watched := guardedEvents
	for _, t := range tg.group.tasks {
		if t.isDuplicate() {
			b.p.notifyKnown(tg.group.ctx, t, t.answer)
			t.settled = true
		} else if watched--; watched >= 0 && !tg.unread.refused {
			t.isolated = true
		}
	}
	b.advance()
}

// claim calls the store, which calls the handlers, perhaps more than once. Each handler has its own
// timeout.
func (tg *txGroup) claim(hard context.Context) error {
	limit := time.Duration(0)
	for _, t := range tg.group.tasks {
		limit = max(limit, t.route.Timeout)
	}
	return inTxTime(
		hard,
		func(ctx context.Context, abort context.CancelCauseFunc, run func(func()) error) error {
			return tg.group.tx.ClaimTx(
				ctx,
				limit,
				tg.reqs,
				tg.answers,
				func(tx any) ([]dedup.Completion, error) {
					var ended error
					err := run(func() { ended = tg.runFresh(ctx, abort, tx) })
					return nil, firstOf(err, ended)
				},
			)
		},
	)
}

// runFresh runs the fresh events in a transaction of the store, or ends the transaction if no
// handler may run.
func (tg *txGroup) runFresh(ctx context.Context, abort context.CancelCauseFunc, tx any) error {
	fresh := tg.fresh()
	if tg.lookOnly || !tg.group.single && tg.behindException() || !tg.decode(fresh) {
		return errLookOnly // known events stay known
	}
	tg.ran = true
	return tg.run(ctx, abort, tx, fresh)
}

// decode decodes the fresh events. The result is false if an event cannot be decoded. Such an event
// is isolated. The only event of a group is settled after the rollback.
func (tg *txGroup) decode(fresh []*task) bool {
	tg.unread = outcome{}
	for _, t := range fresh {
		if o := t.decodeFresh(); o.refused {
			t.isolated, tg.unread = true, o
		}
	}
	return !tg.unread.refused
}

// keepAnswers copies the answers to the tasks, because the store takes them back with a transaction
// that is rolled back.
func (tg *txGroup) keepAnswers() {
	for i, t := range tg.group.sorted {
		t.answer = tg.answers[i]
		t.decision = verdict(t.answer, &t.route.Policy, &t.attempts, t.facts(t.answer))
	}
}

// fresh returns the events that are to run, in the order of delivery.
func (tg *txGroup) fresh() []*task {
	tg.keepAnswers()
	fresh := make([]*task, 0, len(tg.group.tasks))
	for _, t := range tg.group.tasks {
		if t.answer.Verdict == dedup.Fresh {
			t.attempt, t.uncertain = t.failures+1, false
			fresh = append(fresh, t)
		}
	}
	return fresh
}
