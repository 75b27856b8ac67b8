package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
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
func (p *Processor) deferrers() map[deferredKey]bool {
	found := make(map[deferredKey]bool)
	for _, g := range p.routes.groups {
		for _, b := range g.byType {
			if _, ok := b.access.store.(dedup.Deferrer); ok && !p.cfg.Shadow {
				at := deferredKey{dedup.DeferredPartition{Scope: p.placeOf(b).scope}, b.access}
				found[at] = found[at] || b.Mode == KeyOrdered
			}
		}
	}
	return found
}

// RunDeferred runs what waits in the store for the partition when it is due, in the order of Kafka keys, until ctx ends
// (rule 4). Only the owner of a partition may call it, once, beside its calls of HandleBatch, and after [Processor.Assigned]; lane.New does
// so by itself. It returns when all it began has ended, with nil, or with an error that matches [ErrAbandoned].
func (p *Processor) RunDeferred(ctx context.Context, topic string, partition int32) error {
	if _, _, ok := p.copies.topics.Source(topic); ok { // what waits, waits with its source
		return nil
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for at, ordered := range p.deferrers() {
		at.Topic, at.Partition = topic, partition
		runner := &deferredRunner{p: p, access: at.access, part: p.deferredPartitions.of(at), slots: make(chan struct{}, queuesAtOnce), restUntil: make(map[string]time.Time)}
		all.Go(func() {
			if !ordered && !runner.anyDeferred(ctx) {
				return
			}
			if err := runner.run(ctx); err != nil {
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
	p       *Processor
	access  *storeAccess
	part    *deferredPartition
	slots   chan struct{}
	running sync.WaitGroup

	mu        sync.Mutex
	restUntil map[string]time.Time // queues that are being run (zero), or are left alone until then
	abandoned error
}

// anyDeferred reports whether anything waits in a partition to which nothing comes any longer. It is asked with each assignment, as members
// of the release before may have deferred more until then.
func (r *deferredRunner) anyDeferred(ctx context.Context) (some bool) {
	err := r.access.insist(ctx, &waitBudget{left: idemtype.Forever}, "look for deferred events", func() (bool, error) {
		err := within(ctx, txSlack, func(ctx context.Context) error {
			queues, err := r.part.deferrer.Queues(ctx, r.part.id, "", 2)
			some = len(queues) > 0
			return err
		})
		final := ctx.Err() != nil || !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
		return final, err
	})
	if err != nil && ctx.Err() == nil {
		r.p.log.WarnContext(ctx, "not known whether events are deferred, and none of them runs",
			"topic", r.part.id.Topic, "partition", r.part.id.Partition, "error", r.p.errorText(err))
	}
	return err == nil && some
}

func (r *deferredRunner) run(ctx context.Context) error {
	defer r.running.Wait()
	for outages := 0; ; {
		wait := deferredEvery
		heads, next, err := r.due(ctx)
		moved := false
		if err == nil {
			moved, err = r.round(ctx, heads)
		}
		switch {
		case ctx.Err() != nil:
			r.running.Wait()
			return r.abandoned
		case err != nil:
			outages++
			wait = outageWait(outages)
		default:
			outages = 0
			// What was due and has not begun waits for those who are at it, and they signal.
			if next > 0 || next == 0 && moved && len(r.slots) < queuesAtOnce {
				wait = min(wait, max(next, 10*time.Millisecond))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.part.wake:
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
func (r *deferredRunner) round(ctx context.Context, heads []dedup.Deferred) (moved bool, err error) {
	var stuck []string
	var firstErr error
	var first dedup.Key
	for i := range heads {
		if r.isBusy(heads[i].Queue) {
			continue
		}
		if err := r.p.noHandler(&heads[i]); err != nil {
			if firstErr == nil {
				firstErr, first = err, heads[i].Key
			}
			stuck = append(stuck, heads[i].Queue)
			continue
		}
		moved = r.begin(ctx, heads[i]) || moved
	}
	if len(stuck) == 0 {
		return moved, nil
	}
	r.p.log.WarnContext(ctx, "deferred events are left where they are", "topic", r.part.id.Topic, "partition", r.part.id.Partition,
		"queues", len(stuck), "key", first.String(), "error", r.p.errorText(firstErr))
	return true, r.postponeQueues(ctx, stuckWait, stuck...)
}

// delay lets queues wait for their next turn.
func (r *deferredRunner) postponeQueues(ctx context.Context, wait time.Duration, queues ...string) error {
	began := time.Now()
	err := within(ctx, txSlack, func(ctx context.Context) error { return r.part.deferrer.Delay(ctx, r.part.id, wait, queues...) })
	if err != nil && ctx.Err() == nil {
		r.access.down(ctx, began, err)
	}
	return err
}

func (r *deferredRunner) due(ctx context.Context) (heads []dedup.Deferred, next time.Duration, err error) {
	began := time.Now()
	err = within(ctx, txSlack, func(ctx context.Context) (err error) {
		heads, next, err = r.part.deferrer.Due(ctx, r.part.id, dueAtOnce)
		return err
	})
	switch {
	case err == nil && len(heads) < dueAtOnce:
		r.forget(heads)
	case err != nil && ctx.Err() == nil:
		r.access.down(ctx, began, err)
	}
	return heads, next, err
}

// forget drops what is known of queues that were left alone and are not due any longer. heads is all that is due.
func (r *deferredRunner) forget(heads []dedup.Deferred) {
	due := make(map[string]bool, len(heads))
	for i := range heads {
		due[heads[i].Queue] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue, until := range r.restUntil {
		if !until.IsZero() && !due[queue] {
			delete(r.restUntil, queue)
		}
	}
}

// busy reports whether a queue is being run, or is left alone.
func (r *deferredRunner) isBusy(queue string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, known := r.restUntil[queue]
	return known && (until.IsZero() || time.Now().Before(until))
}

// begin runs a queue if nobody is at it and there is a slot.
func (r *deferredRunner) begin(ctx context.Context, head dedup.Deferred) (begun bool) {
	if r.isBusy(head.Queue) {
		return false
	}
	select {
	case r.slots <- struct{}{}:
	default:
		return false
	}
	r.mu.Lock()
	r.restUntil[head.Queue] = time.Time{}
	r.mu.Unlock()
	r.running.Go(func() {
		err := r.runQueue(ctx, head)
		rest := err != nil && r.postponeQueues(ctx, deferredEvery, head.Queue) != nil
		<-r.slots
		r.mu.Lock()
		defer r.mu.Unlock()
		if errors.Is(err, idemtype.ErrAbandoned) {
			r.abandoned = err
		}
		if rest { // what cannot be run now is not asked for again at once
			r.restUntil[head.Queue] = time.Now().Add(deferredEvery)
		} else {
			delete(r.restUntil, head.Queue)
		}
		r.part.signal() // there is a slot, and perhaps more that is due
	})
	return true
}

// takeAhead is how many of those behind a head are taken together: they have not failed, as a rule.
const takeAhead = 64

// queue runs the events of a queue until one of them must wait. The head goes by itself: it has failed before.
func (r *deferredRunner) runQueue(ctx context.Context, head dedup.Deferred) error {
	for events := []dedup.Deferred{head}; len(events) > 0; {
		goesOn, err := r.runEvents(ctx, events)
		if err != nil {
			if ctx.Err() == nil {
				r.p.log.WarnContext(ctx, "deferred event is left where it is", "topic", r.part.id.Topic, "partition", r.part.id.Partition,
					"key", head.Key.String(), "error", r.p.errorText(err))
			}
			return err
		}
		if !goesOn || ctx.Err() != nil {
			return nil //nolint:nilerr // a stop is no failure
		}
		if events, err = r.next(ctx, head.Queue); err != nil {
			return err
		}
	}
	return nil
}

// next returns what may run now of a queue.
func (r *deferredRunner) next(ctx context.Context, queue string) (events []dedup.Deferred, err error) {
	err = within(ctx, txSlack, func(ctx context.Context) (err error) {
		events, err = r.part.deferrer.First(ctx, r.part.id, queue, takeAhead)
		return err
	})
	for i, e := range events {
		if e.Blocked || e.Wait > 0 {
			return events[:i], err
		}
	}
	return events, err
}

// runEvents runs the first events of a queue, in their order. It reports whether all of them are out of the
// queue; if not, none behind the one that stays was run.
func (r *deferredRunner) runEvents(ctx context.Context, events []dedup.Deferred) (all bool, err error) {
	msgs, copies := make([]*idemtype.Message, len(events)), make([]*copied, len(events))
	for i := range events {
		if msgs[i], copies[i], err = fromDeferred(events[i]); err != nil {
			return false, err
		}
	}
	b := r.p.newBatch(ctx, msgs, func(int) {})
	b.budget = &waitBudget{left: idemtype.Forever}
	b.stopAfter = func(t *task) bool { return r.staysInQueue(t) || r.overtaken(t) }
	for i := range b.tasks {
		t := &b.tasks[i]
		t.copied, t.deferred = copies[i], &deferredEvent{part: r.part, head: events[i]}
		if err := b.resolve(i).unhandledError(); err != nil {
			return false, err
		}
	}
	err = b.settle()
	out, stays := events[:b.next], false
	if n := b.next; n > 0 && r.staysInQueue(&b.tasks[n-1]) {
		out, stays = events[:n-1], true
	}
	if removeErr := r.remove(ctx, out); removeErr != nil || err != nil {
		return false, errors.Join(err, removeErr)
	}
	if stays {
		return false, r.block(ctx, &b.tasks[len(out)])
	}
	return true, nil
}

// staysInQueue reports whether a settled event keeps its place in the queue, and so do those behind it.
func (r *deferredRunner) staysInQueue(t *task) bool {
	if t.destination != destHandler {
		return false
	}
	return t.ending == endRescheduled && t.action.kind == actDelayedRetry && t.route.Mode == KeyOrdered || t.ending == endDead && !t.route.ContinueAfterDead
}

// overtaken reports whether a later attempt has overtaken a deferred event: another one who takes himself for the owner has
// postponed it, and what comes behind it waits for that. What the table holds is looked up before more of the queue is run.
func (r *deferredRunner) overtaken(t *task) bool {
	return t.destination == destHandler && t.ending == endRescheduled
}

// block leaves a dead event at the head of its queue, for a person. One that was postponed is where it should be.
func (r *deferredRunner) block(ctx context.Context, t *task) error {
	if t.ending != endDead {
		return nil
	}
	head := t.deferred.head
	head.Blocked, head.Position = true, t.request.Position
	return r.p.postpone(ctx, t, head)
}

// remove takes events out of their queue for good.
func (r *deferredRunner) remove(ctx context.Context, events []dedup.Deferred) error {
	if len(events) == 0 {
		return nil
	}
	r.part.tableMu.Lock()
	defer r.part.tableMu.Unlock()
	queue := events[0].Queue
	return r.access.repeat(ctx, &waitBudget{left: idemtype.Forever}, "remove deferred events", func(ctx context.Context) error {
		empty, err := r.part.deferrer.Remove(ctx, r.part.id, queue, events...)
		if err == nil && empty {
			r.part.set(queue, false)
		}
		return err
	})
}
