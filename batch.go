package idem

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

// batch is one call of Settle. It goes through its messages in order, in runs: events next to each other that share a round
// trip for their claims, and a transaction if their handlers have one. A run knows the good case only. An event that is
// anything else (busy, failed, given up before) is taken out of it and goes through the gate by itself, in its place.
type batch struct {
	p               *Processor
	ctx             context.Context
	tasks           []task
	resolved        int // entries before it were looked into
	next            int // entries before it are settled
	notified        int // as progress knows
	budget          *waitBudget
	progress        func(settled int)
	stopAfter       func(*task) bool // if not nil: whether nothing behind a settled event may run
	halted          bool
	outages         int
	contended       int              // runs in a row that met a lock before their handlers
	deferredVersion uint64           // the version of deferredPartitions at which what waits was deferred
	keys            map[uint64]*task // the last of each Kafka key in the run that is being planned
}

// destination is what a message is for, as far as can be said without a store.
type destination uint8

const (
	destHandler destination = iota + 1
	destUnhandled
	destFallback
	destDeadLetter
	destNoMessage // there is no message
	destReread    // it could not be read, or is not to be read yet: once more
)

// passive reports whether nothing is to be done but to tell of it.
func (t *task) passive() bool { return t.settled || t.destination == destUnhandled }

func (p *Processor) newBatch(ctx context.Context, msgs []*Message, progress func(int)) *batch {
	b := &batch{p: p, ctx: ctx, tasks: make([]task, len(msgs)), budget: &waitBudget{left: p.cfg.BusyWait}, progress: progress, deferredVersion: ^uint64(0)}
	for i, m := range msgs {
		b.tasks[i].message, b.tasks[i].index = m, i
	}
	return b
}

// settle goes on until all is settled, or an error says why the next message is not.
func (b *batch) settle() error {
	defer b.notifySettled(true)
	for b.next < len(b.tasks) && !b.halted {
		if b.ctx.Err() != nil {
			return stopCause(b.ctx)
		}
		if n := b.p.abandonedNow.Load(); n >= maxAbandoned {
			return fmt.Errorf("%w: %d hang, restart the process", ErrAbandoned, n)
		}
		if err := b.step(); err != nil {
			return err
		}
	}
	return nil
}

// step settles the next message, and as many after it as share a run with it; or finds out that they cannot.
func (b *batch) step() error {
	if err := b.deferWaiting(); err != nil || b.next == len(b.tasks) {
		return err
	}
	t := b.resolve(b.next)
	if t.destination == destReread {
		return b.reread(t)
	}
	if t.destination != destHandler {
		return b.settleUnhandled(t)
	}
	if due := t.due(); due > 0 {
		return b.budget.wait(b.ctx, due, ErrNotDue)
	}
	g := b.group()
	g.afford()
	taken := g.tasks[:g.access.inflight.join(g.tasks)]
	if len(taken) == 0 {
		return g.access.inflight.wait(b.ctx, g.tasks[0].request.Key, b.budget)
	}
	defer g.access.inflight.finish(taken)
	g.cut(len(taken))
	if g.single = len(g.tasks) == 1; g.single {
		return b.single(g)
	}
	return g.observed(g.attempt)
}

// single takes an event through the gate by itself, whatever that takes.
func (b *batch) single(g *eventGroup) error {
	t := g.tasks[0]
	if !t.blockedSince.IsZero() { // it waited for the events before it
		t.excludeWait(time.Since(t.lastFailure))
	}
	err := g.settleSingle()
	if err == nil {
		err = b.p.settleFormer(b.ctx, t)
	}
	t.settled = err == nil
	if err == nil {
		b.advance()
	}
	return err
}

// advance moves over what is settled, and tells.
func (b *batch) advance() {
	for b.next < b.resolved && !b.halted && b.settleKnown(&b.tasks[b.next]) {
		b.halted = b.stopAfter != nil && b.stopAfter(&b.tasks[b.next])
		b.next++
	}
	if b.next > b.notified {
		b.notifySettled(false)
		b.notified = b.next
		b.progress(b.next)
	}
}

// settleKnown reports whether e is settled, and settles what needs nothing but to be told.
func (b *batch) settleKnown(t *task) bool {
	switch {
	case t.settled:
	case t.destination == destUnhandled:
		t.settlement = SettledSkipped
		b.p.notifySkipped(b.ctx, t.message, t.typ, t.message.Value == nil)
	case t.leader != nil && t.leader.settled:
		if !t.leader.handled || b.p.cfg.Shadow { // given up, or not known to have been handled: the store says what that means for a copy
			t.leader, t.isolated = nil, true
			return false
		}
		b.p.notifyDuplicate(b.ctx, t, dedup.Answer{Verdict: dedup.Done, First: t.leader.seen})
	default:
		return false
	}
	t.settled = true
	return true
}

// settleUnhandled settles a message that no handler gets.
func (b *batch) settleUnhandled(t *task) (err error) {
	switch t.destination {
	case destNoMessage:
		return t.err
	case destDeadLetter:
		t.settlement = SettledDeadLetter
		err = b.p.deadLetterTask(b.ctx, t)
	case destFallback:
		t.settlement, err = b.p.runNotFound(b.ctx, t.message, b.budget)
	default:
		b.advance()
		return nil
	}
	if err != nil {
		return err
	}
	t.settled = true
	b.advance()
	return nil
}
