package idem

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// queuesAtOnce is how many queues of a partition are run at a time.
const queuesAtOnce = 8

// deferredEvery is how often the table is looked at although nothing is known to be due: a person may have replayed or skipped an
// event.
const deferredEvery = 5 * time.Second

// RunsDeferred reports whether events may wait in a store, so that [Processor.RunDeferred] has something to do.
func (p *Processor) RunsDeferred() bool { return len(p.deferrers()) > 0 }

// deferrers are the scopes in which events may wait, and the stores they wait in; true if a handler is [KeyOrdered]. Where none
// is any longer, a release before may have left some.
func (p *Processor) deferrers() map[deferredAt]bool {
	found := make(map[deferredAt]bool)
	for _, g := range p.routes.groups {
		for _, b := range g.byType {
			if _, ok := b.access.store.(dedup.Deferrer); ok && !p.cfg.Shadow {
				at := deferredAt{dedup.DeferredPartition{Scope: b.scopeIn(p)}, b.access}
				found[at] = found[at] || b.mode == keyOrdered
			}
		}
	}
	return found
}

func (b *bound) scopeIn(p *Processor) string {
	if b.scope != "" {
		return b.scope
	}
	return p.cfg.Scope
}

// RunDeferred runs what waits in the store for the partition when it is due, in the order of Kafka keys, until ctx ends
// (rule 4). Only the owner of a partition may call it, once, beside its calls of HandleBatch, and after [Processor.Assigned]; lane.New does
// so by itself. It returns when all it began has ended, with nil, or with an error that matches [ErrAbandoned].
func (p *Processor) RunDeferred(ctx context.Context, topic string, partition int32) error {
	if _, _, ok := p.sourceOf(topic); ok { // what waits, waits with its source
		return nil
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for at, ordered := range p.deferrers() {
		at.Topic, at.Partition = topic, partition
		t := &deferredRunner{p: p, access: at.access, part: p.deferredPartitions.of(at), slots: make(chan struct{}, queuesAtOnce), restUntil: make(map[string]time.Time)}
		all.Go(func() {
			if !ordered && !t.left(ctx) {
				return
			}
			if err := t.run(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// deferredRunner runs the queues of one partition.
type deferredRunner struct {
	p      *Processor
	access *storeAccess
	part   *deferredPartition
	slots  chan struct{}
	owned  sync.WaitGroup

	mu        sync.Mutex
	restUntil map[string]time.Time // queues that are being run (zero), or are left alone until then
	abandoned error
}

// left reports whether anything waits in a lot to which nothing comes any longer. It is asked with each assignment, as members
// of the release before may have deferred more until then.
func (t *deferredRunner) left(ctx context.Context) (some bool) {
	err := t.p.insist(ctx, &waitBudget{left: Forever}, &t.access.health, "look for deferred events", func() (error, bool) {
		err := t.p.bounded(ctx, txSlack, func(ctx context.Context) error {
			queues, err := t.part.deferrer.Queues(ctx, t.part.id, "", 2)
			some = len(queues) > 0
			return err
		})
		return err, ctx.Err() != nil || !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
	})
	if err != nil && ctx.Err() == nil {
		t.p.log.WarnContext(ctx, "not known whether events are deferred, and none of them runs",
			"topic", t.part.id.Topic, "partition", t.part.id.Partition, "error", t.p.errorText(err))
	}
	return err == nil && some
}

func (t *deferredRunner) run(ctx context.Context) error {
	defer t.owned.Wait()
	for outages := 0; ; {
		wait := deferredEvery
		heads, next, err := t.due(ctx)
		moved := false
		if err == nil {
			moved, err = t.round(ctx, heads)
		}
		switch {
		case ctx.Err() != nil:
			t.owned.Wait()
			return t.abandoned
		case err != nil:
			outages++
			wait = outageWait(outages)
		default:
			outages = 0
			// What was due and has not begun waits for those who are at it, and they signal.
			if next > 0 || next == 0 && moved && len(t.slots) < queuesAtOnce {
				wait = min(wait, max(next, 10*time.Millisecond))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.part.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

const (
	// dueAtOnce is how many queues are asked for at a time. It is more than are run, which are due until they have ended.
	dueAtOnce = 8 * queuesAtOnce
	// stuckWait is how long a queue is left alone for whose head there is no handler: only another release has one.
	stuckWait = 30 * time.Second
)

// round runs queues. Those whose heads nobody can handle give up their turn, so that they keep no others from theirs, however
// many they are. It reports whether others may have come to be the longest due.
func (t *deferredRunner) round(ctx context.Context, heads []dedup.Deferred) (moved bool, err error) {
	var stuck []string
	var why error
	var first dedup.Key
	for i := range heads {
		if t.busy(heads[i].Queue) {
			continue
		}
		if err := t.p.noHandler(&heads[i]); err != nil {
			if why == nil {
				why, first = err, heads[i].Key
			}
			stuck = append(stuck, heads[i].Queue)
			continue
		}
		moved = t.begin(ctx, heads[i]) || moved
	}
	if len(stuck) == 0 {
		return moved, nil
	}
	t.p.log.WarnContext(ctx, "deferred events are left where they are", "topic", t.part.id.Topic, "partition", t.part.id.Partition,
		"queues", len(stuck), "key", first.String(), "error", t.p.errorText(why))
	return true, t.delay(ctx, stuckWait, stuck...)
}

// delay lets queues wait for their next turn.
func (t *deferredRunner) delay(ctx context.Context, wait time.Duration, queues ...string) error {
	began := time.Now()
	err := t.p.bounded(ctx, txSlack, func(ctx context.Context) error { return t.part.deferrer.Delay(ctx, t.part.id, wait, queues...) })
	if err != nil && ctx.Err() == nil {
		t.access.down(ctx, t.p, began, err)
	}
	return err
}

func (t *deferredRunner) due(ctx context.Context) (heads []dedup.Deferred, next time.Duration, err error) {
	began := time.Now()
	err = t.p.bounded(ctx, txSlack, func(ctx context.Context) (err error) {
		heads, next, err = t.part.deferrer.Due(ctx, t.part.id, dueAtOnce)
		return err
	})
	switch {
	case err == nil && len(heads) < dueAtOnce:
		t.forget(heads)
	case err != nil && ctx.Err() == nil:
		t.access.down(ctx, t.p, began, err)
	}
	return heads, next, err
}

// forget drops what is known of queues that were left alone and are not due any longer. heads is all that is due.
func (t *deferredRunner) forget(heads []dedup.Deferred) {
	due := make(map[string]bool, len(heads))
	for i := range heads {
		due[heads[i].Queue] = true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for queue, until := range t.restUntil {
		if !until.IsZero() && !due[queue] {
			delete(t.restUntil, queue)
		}
	}
}

// busy reports whether a queue is being run, or is left alone.
func (t *deferredRunner) busy(queue string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, known := t.restUntil[queue]
	return known && (until.IsZero() || time.Now().Before(until))
}

// begin runs a queue if nobody is at it and there is a slot.
func (t *deferredRunner) begin(ctx context.Context, head dedup.Deferred) (begun bool) {
	if t.busy(head.Queue) {
		return false
	}
	select {
	case t.slots <- struct{}{}:
	default:
		return false
	}
	t.mu.Lock()
	t.restUntil[head.Queue] = time.Time{}
	t.mu.Unlock()
	t.owned.Go(func() {
		err := t.queue(ctx, head)
		rest := err != nil && t.delay(ctx, deferredEvery, head.Queue) != nil
		<-t.slots
		t.mu.Lock()
		defer t.mu.Unlock()
		if errors.Is(err, ErrAbandoned) {
			t.abandoned = err
		}
		if rest { // what cannot be run now is not asked for again at once
			t.restUntil[head.Queue] = time.Now().Add(deferredEvery)
		} else {
			delete(t.restUntil, head.Queue)
		}
		t.part.signal() // there is a slot, and perhaps more that is due
	})
	return true
}

// takeAhead is how many of those behind a head are taken together: they have not failed, as a rule.
const takeAhead = 64

// queue runs the events of a queue until one of them must wait. The head goes by itself: it has failed before.
func (t *deferredRunner) queue(ctx context.Context, head dedup.Deferred) error {
	for events := []dedup.Deferred{head}; len(events) > 0; {
		goesOn, err := t.events(ctx, events)
		if err != nil {
			if ctx.Err() == nil {
				t.p.log.WarnContext(ctx, "deferred event is left where it is", "topic", t.part.id.Topic, "partition", t.part.id.Partition,
					"key", head.Key.String(), "error", t.p.errorText(err))
			}
			return err
		}
		if !goesOn || ctx.Err() != nil {
			return nil //nolint:nilerr // a stop is no failure
		}
		if events, err = t.next(ctx, head.Queue); err != nil {
			return err
		}
	}
	return nil
}

// next returns what may run now of a queue.
func (t *deferredRunner) next(ctx context.Context, queue string) (events []dedup.Deferred, err error) {
	err = t.p.bounded(ctx, txSlack, func(ctx context.Context) (err error) {
		events, err = t.part.deferrer.First(ctx, t.part.id, queue, takeAhead)
		return err
	})
	for i, e := range events {
		if e.Blocked || e.Wait > 0 {
			return events[:i], err
		}
	}
	return events, err
}

// events takes the first events of a queue through the gate, in their order. It reports whether all of them are out of the
// queue; if not, none behind the one that stays was run.
func (t *deferredRunner) events(ctx context.Context, events []dedup.Deferred) (all bool, err error) {
	msgs := make([]*Message, len(events))
	for i := range events {
		if msgs[i], err = fromDeferred(events[i]); err != nil {
			return false, err
		}
	}
	b := t.p.newBatch(ctx, msgs, func(int) {})
	b.budget = &waitBudget{left: Forever}
	b.last = func(e *task) bool { return t.stuck(e) || t.elsewhere(e) }
	for i := range b.tasks {
		e := &b.tasks[i]
		e.deferred = &deferredEvent{part: t.part, head: events[i]}
		if err := b.look(i).stuck(); err != nil {
			return false, err
		}
	}
	err = b.settle()
	out, stays := events[:b.next], false
	if n := b.next; n > 0 && t.stuck(&b.tasks[n-1]) {
		out, stays = events[:n-1], true
	}
	if removeErr := t.remove(ctx, out); removeErr != nil || err != nil {
		return false, errors.Join(err, removeErr)
	}
	if stays {
		return false, t.block(ctx, &b.tasks[len(out)])
	}
	return true, nil
}

// stuck reports whether a settled event keeps its place in the queue, and so do those behind it.
func (t *deferredRunner) stuck(e *task) bool {
	if e.destination != forHandler {
		return false
	}
	return e.end == endRescheduled && e.action.kind == actDelayedRetry && e.route.mode == keyOrdered || e.end == endDead && !e.route.pastDead
}

// elsewhere reports whether a later attempt has overtaken a deferred event: another one who takes himself for the owner has
// postponed it, and what comes behind it waits for that. What the table holds is looked up before more of the queue is run.
func (t *deferredRunner) elsewhere(e *task) bool {
	return e.destination == forHandler && e.end == endRescheduled
}

// block leaves a dead event at the head of its queue, for a person. One that was postponed is where it should be.
func (t *deferredRunner) block(ctx context.Context, e *task) error {
	if e.end != endDead {
		return nil
	}
	head := e.deferred.head
	head.Blocked, head.Position = true, e.request.Position
	return t.p.postpone(ctx, e, head)
}

// remove takes events out of their queue for good.
func (t *deferredRunner) remove(ctx context.Context, events []dedup.Deferred) error {
	if len(events) == 0 {
		return nil
	}
	t.part.running.Lock()
	defer t.part.running.Unlock()
	queue := events[0].Queue
	return t.p.change(ctx, &waitBudget{left: Forever}, t.access, "remove deferred events", func(ctx context.Context) error {
		empty, err := t.part.deferrer.Remove(ctx, t.part.id, queue, events...)
		if err == nil && empty {
			t.part.set(queue, false)
		}
		return err
	})
}
