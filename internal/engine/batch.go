package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// batch is the work of one call of [Processor.Settle]. A batch settles the messages in order, in
// groups of neighbouring events. The events of a group share one round trip for their claims.
// Events of transactional handlers share a transaction too.
//
// A group settles fresh events and duplicates. Any other event, such as a busy or failed one,
// leaves the group and is settled by itself.
type batch struct {
	p        *Processor
	ctx      context.Context
	tasks    []task
	resolved int // tasks before this index are resolved
	next     int // tasks before this index are settled
	notified int // the last value that progress got
	budget   *waitBudget
	progress func(settled int)
	// reports whether the events behind a settled one must not run; may be nil
	stopAfter func(*task) bool
	halted    bool
	outages   int
	contended int // consecutive groups that met a lock before their handlers
	// version of deferredPartitions when events were last deferred
	deferredVersion uint64
	// the last task of each Kafka key in the group that is being formed
	keys map[uint64]*task
}

func (p *Processor) newBatch(
	ctx context.Context, msgs []*idemtype.Message, progress func(int),
) *batch {
	b := &batch{
		p: p, ctx: ctx, tasks: make([]task, len(msgs)), progress: progress,
		budget: &waitBudget{left: p.cfg.BusyWait}, deferredVersion: ^uint64(0),
	}
	for i, m := range msgs {
		b.tasks[i].message, b.tasks[i].index = m, i
	}
	return b
}

// settle settles all messages. An error is the reason why the next message is not settled.
func (b *batch) settle() error {
	defer b.notifySettled(true)
	for b.next < len(b.tasks) && !b.halted {
		if b.ctx.Err() != nil {
			return stopCause(b.ctx)
		}
		if n := b.p.abandonedNow.Load(); n >= maxAbandoned {
			return fmt.Errorf("%w: %d hang, restart the process", idemtype.ErrAbandoned, n)
		}
		if err := b.settleNext(); err != nil {
			return err
		}
	}
	return nil
}

// settleNext settles the next message, together with the messages behind it that can share a group.
func (b *batch) settleNext() error {
	if err := b.deferWaiting(); err != nil || b.next == len(b.tasks) {
		return err
	}
	t := b.resolve(b.next)
	if t.destination == destReread {
		b.deferredVersion = ^uint64(0) // the events behind this one were not looked at
		return b.p.reread(b.ctx, t)
	}
	if t.destination != destHandler {
		return b.settleUnhandled(t)
	}
	if due := t.due(); due > 0 {
		return b.budget.wait(b.ctx, due, idemtype.ErrNotDue)
	}
	if t.route.spare != nil {
		if err := awaitPauses(b.ctx, t); err != nil {
			return err
		}
		if b.runsWithoutStore(t) {
			return b.settleWithoutStore(t)
		}
	}
	if err := b.settleGroup(); !errors.Is(err, errWithoutStore) {
		return err
	}
	return nil // the event runs without the store next
}

// settleGroup settles a group that begins with the next message.
func (b *batch) settleGroup() error {
	g := b.formGroup()
	if err := awaitPauses(g.ctx, g.tasks...); err != nil {
		return err
	}
	g.payRetries()
	tasks := g.tasks
	key := func(i int) dedup.Key { return tasks[i].request.Key }
	taken := g.access.inflight.join(len(tasks), key)
	if taken == 0 {
		return g.access.inflight.wait(b.ctx, g.tasks[0].request.Key, b.budget)
	}
	defer g.access.inflight.leave(taken, key)
	g.cut(taken)
	if g.single = len(g.tasks) == 1; g.single {
		return b.settleAlone(g)
	}
	return g.observed(g.runOnce)
}

// settleAlone settles the only event of a group, including the waits and retries.
func (b *batch) settleAlone(g *eventGroup) error {
	t := g.tasks[0]
	if !t.unprotected { // an event that ran without the store is the first one
		t.excludeWait(t.behindOthers(time.Now()))
	}
	err := g.settleSingle()
	if err == nil && t.destination == destReread {
		return nil
	}
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

// settleKnown reports whether the task is settled. A message that needs no more than a notification
// is settled here.
func (b *batch) settleKnown(t *task) bool {
	switch {
	case t.settled:
	case t.destination == destUnhandled:
		t.kind = observe.SettledSkipped
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
		t.kind = observe.SettledDeadLetter
		err = b.p.deadLetterTask(b.ctx, t)
	case destNoID:
		b.skipNoID(t)
	case destUnprotected:
		err = b.p.settleUnprotected(b.ctx, t)
	case destFallback:
		t.kind, err = b.p.runNotFound(b.ctx, t.message, t.typ, b.budget)
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

// notifySettled reports the deliveries that were settled since the last call, in the order of the
// batch. rest is true at the end of a batch. The report then includes settled deliveries behind an
// unsettled one. Such deliveries come again and count again, as duplicates.
func (b *batch) notifySettled(rest bool) {
	if len(b.p.obs.Settled) == 0 {
		return
	}
	var e observe.SettledEvent
	total := 0
	flush := func() {
		if total > 0 {
			for _, o := range b.p.obs.Settled {
				o.ObserveSettled(b.ctx, e)
			}
		}
		total = 0
	}
	to := b.next
	if rest {
		to = len(b.tasks)
	}
	for i := b.notified; i < to; i++ {
		t := &b.tasks[i]
		if !t.settled {
			continue
		}
		topic, partition := t.place()
		if total > 0 &&
			(e.Partition != partition || e.Topic != topic || e.Deferred != (t.deferred != nil)) {
			flush()
		}
		if total == 0 {
			e = observe.SettledEvent{
				Group: b.p.cfg.Group, Topic: topic, Partition: partition,
				Deferred: t.deferred != nil,
			}
		}
		e.Counts[t.kind]++
		total++
	}
	flush()
}

// place returns the partition from which the delivery was fetched.
func (t *task) place() (topic string, partition int32) {
	if c := t.copied; c != nil && c.topic != "" {
		return c.topic, c.partition
	}
	return t.message.Topic, t.message.Partition
}

// deferWaiting defers all events of the batch with a Kafka key that has a queue in the store. Other
// keys then need not wait for them. One call of the store defers many events.
func (b *batch) deferWaiting() error {
	version := b.p.deferredPartitions.version.Load()
	if !b.p.ordered || b.deferredVersion == version {
		return nil
	}
	b.deferredVersion = version
	waiting := make(map[*deferredPartition][]*task)
	for i := b.next; i < len(b.tasks); i++ {
		t := b.resolve(i)
		unread := t.destination == destReread
		if unread && (t.request.Key.ID == "" || t.route.Mode != KeyOrdered || t.deferred != nil) {
			break // the event may belong to a queue, and no event may overtake it
		}
		if t.settled || t.destination != destHandler && !unread || t.route.Mode != KeyOrdered ||
			t.deferred != nil {
			continue
		}
		part := b.p.deferredPartitionOf(t)
		if err := b.p.loadDeferred(b.ctx, part, t); err != nil {
			return err
		}
		if part.has(b.p.orderKeyOf(t)) {
			waiting[part] = append(waiting[part], t)
		} else if unread {
			break
		}
	}
	for part, tasks := range waiting {
		if err := b.p.deferBehind(b.ctx, part, tasks); err != nil {
			b.advance() // some events are settled
			return err
		}
	}
	b.advance()
	return nil
}

// resolve resolves message i, once.
func (b *batch) resolve(i int) *task {
	t := &b.tasks[i]
	if i < b.resolved {
		return t
	}
	b.resolved = i + 1
	b.p.resolve(b.ctx, t)
	t.budget = b.budget
	return t
}

// maxAbandoned limits the abandoned handlers. At the limit no handler starts (rule 48).
const maxAbandoned = 64
