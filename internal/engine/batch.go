package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// batch is the work of one call of [Processor.HandleBatch]. It settles the messages in order, in
// groups of neighbouring events. The events of a group share one round trip for their claims, and a
// transaction if their handlers are transactional. A group settles fresh events and duplicates
// only. Any other event (busy, failed, given up before) leaves the group and is settled by itself,
// in its place.
type batch struct {
	p        *Processor
	ctx      context.Context
	tasks    []task
	resolved int // tasks before this index are resolved
	next     int // tasks before this index are settled
	notified int // the last value that progress got
	budget   *waitBudget
	progress func(settled int)
	// whether the events behind a settled one must not run; may be nil
	stopAfter func(*task) bool
	halted    bool
	outages   int
	contended int // groups in a row that met a lock before their handlers
	// version of deferredPartitions when events were last deferred
	deferredVersion uint64
	// the last task of each Kafka key in the group that is being formed
	keys map[uint64]*task
}

// destination is the further way of a message. It is decided without the store.
type destination uint8

const (
	destHandler destination = iota + 1
	destUnhandled
	destFallback
	destDeadLetter
	destNoMessage // the message is nil
	destReread    // the record was not readable, or is not due: resolve it again
)

// passive reports whether the message needs nothing but a notification of observers.
func (t *task) passive() bool { return t.settled || t.destination == destUnhandled }

func (p *Processor) newBatch(ctx context.Context, msgs []*idemtype.Message, progress func(int)) *batch {
	b := &batch{
		p: p, ctx: ctx, tasks: make([]task, len(msgs)), progress: progress,
		budget: &waitBudget{left: p.cfg.BusyWait}, deferredVersion: ^uint64(0),
	}
	for i, m := range msgs {
		b.tasks[i].message, b.tasks[i].index = m, i
	}
	return b
}

// settle runs until all messages are settled. An error is the reason why the next message is not.
func (b *batch) settle() error {
	defer b.notifySettled(true)
	for b.next < len(b.tasks) && !b.halted {
		if b.ctx.Err() != nil {
			return stopCause(b.ctx)
		}
		if n := b.p.abandonedNow.Load(); n >= maxAbandoned {
			return fmt.Errorf("%w: %d hang, restart the process", idemtype.ErrAbandoned, n)
		}
		if err := b.step(); err != nil {
			return err
		}
	}
	return nil
}

// step settles the next message, together with the messages behind it that can share a group with
// it.
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
		return b.budget.wait(b.ctx, due, idemtype.ErrNotDue)
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

// single settles the only event of a group, including its waits and retries.
func (b *batch) single(g *eventGroup) error {
	t := g.tasks[0]
	if !t.blockedSince.IsZero() { // the time behind earlier events is not its own
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

// advance moves b.next over the settled messages and reports the progress.
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

// settleKnown reports whether the task is settled. It settles a message that needs a notification
// only.
func (b *batch) settleKnown(t *task) bool {
	switch {
	case t.settled:
	case t.destination == destUnhandled:
		t.settlement = observe.SettledSkipped
		b.p.notifySkipped(b.ctx, t.message, t.typ, t.message.Value == nil)
	case t.leader != nil && t.leader.settled:
		// Only the store can answer for a copy of an event that may not have been handled.
		if !t.leader.handled || b.p.cfg.Shadow {
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

// settleUnhandled settles a message without a handler.
func (b *batch) settleUnhandled(t *task) (err error) {
	switch t.destination {
	case destNoMessage:
		return t.err
	case destDeadLetter:
		t.settlement = observe.SettledDeadLetter
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
