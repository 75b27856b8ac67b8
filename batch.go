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
	p          *Processor
	ctx        context.Context
	tasks      []task
	looked     int // entries before it were looked into
	next       int // entries before it are settled
	notified   int // as progress knows
	budget     *waitBudget
	progress   func(settled int)
	last       func(*task) bool // if not nil: whether nothing behind a settled event may run
	halted     bool
	outages    int
	contended  int              // runs in a row that met a lock before their handlers
	deferredAt uint64           // the version of deferredPartitions at which what waits was deferred
	keys       map[uint64]*task // the last of each Kafka key in the run that is being planned
}

// destination is what a message is for, as far as can be said without a store.
type destination uint8

const (
	forHandler destination = iota + 1
	forNobody
	forFallback
	forDeadLetter
	forNothing // there is no message
	forReading // it could not be read, or is not to be read yet: once more
)

// passive reports whether nothing is to be done but to tell of it.
func (e *task) passive() bool { return e.settled || e.destination == forNobody }

func (p *Processor) newBatch(ctx context.Context, msgs []*Message, progress func(int)) *batch {
	b := &batch{p: p, ctx: ctx, tasks: make([]task, len(msgs)), budget: &waitBudget{left: p.cfg.BusyWait}, progress: progress, deferredAt: ^uint64(0)}
	for i, m := range msgs {
		b.tasks[i].message, b.tasks[i].at = m, i
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
	e := b.look(b.next)
	if e.destination == forReading {
		return b.reread(e)
	}
	if e.destination != forHandler {
		return b.settleUnhandled(e)
	}
	if due := e.due(); due > 0 {
		return b.budget.wait(b.ctx, due, ErrNotDue)
	}
	r := b.group()
	r.afford()
	taken := r.tasks[:r.access.inflight.join(r.tasks)]
	if len(taken) == 0 {
		return r.access.inflight.await(b.ctx, r.tasks[0].request.Key, b.budget)
	}
	defer r.access.inflight.finish(taken)
	r.cut(len(taken))
	if r.single = len(r.tasks) == 1; r.single {
		return b.single(r)
	}
	return r.observed(r.attempt)
}

// single takes an event through the gate by itself, whatever that takes.
func (b *batch) single(r *eventGroup) error {
	e := r.tasks[0]
	if !e.blockedSince.IsZero() { // it waited for the events before it
		e.excludeWait(time.Since(e.lastFailure))
	}
	err := r.settleSingle()
	if err == nil {
		err = b.p.settleFormer(b.ctx, e)
	}
	e.settled = err == nil
	if err == nil {
		b.advance()
	}
	return err
}

// advance moves over what is settled, and tells.
func (b *batch) advance() {
	for b.next < b.looked && !b.halted && b.settleKnown(&b.tasks[b.next]) {
		b.halted = b.last != nil && b.last(&b.tasks[b.next])
		b.next++
	}
	if b.next > b.notified {
		b.notifySettled(false)
		b.notified = b.next
		b.progress(b.next)
	}
}

// settleKnown reports whether e is settled, and settles what needs nothing but to be told.
func (b *batch) settleKnown(e *task) bool {
	switch {
	case e.settled:
	case e.destination == forNobody:
		e.settlement = SettledSkipped
		b.p.notifySkipped(b.ctx, e.message, e.typ, e.message.Value == nil)
	case e.leader != nil && e.leader.settled:
		if !e.leader.handled || b.p.cfg.Shadow { // given up, or not known to have been handled: the store says what that means for a copy
			e.leader, e.isolated = nil, true
			return false
		}
		b.p.notifyDuplicate(b.ctx, e, dedup.Answer{Verdict: dedup.Done, First: e.leader.seen})
	default:
		return false
	}
	e.settled = true
	return true
}

// settleUnhandled settles a message that no handler gets.
func (b *batch) settleUnhandled(e *task) (err error) {
	switch e.destination {
	case forNothing:
		return e.err
	case forDeadLetter:
		e.settlement = SettledDeadLetter
		err = b.p.deadLetterEntry(b.ctx, e)
	case forFallback:
		e.settlement, err = b.p.runNotFound(b.ctx, e.message, b.budget)
	default:
		b.advance()
		return nil
	}
	if err != nil {
		return err
	}
	e.settled = true
	b.advance()
	return nil
}
