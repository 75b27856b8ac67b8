package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// queuesAtOnce limits the queues of a partition that run at a time.
const queuesAtOnce = 8

// deferredEvery is the interval of looks at the table while no due event is known. A person may
// have replayed or skipped an event.
const deferredEvery = 5 * time.Second

// RunsDeferred reports whether events may wait in a store.
func (p *Processor) RunsDeferred() bool { return len(p.deferrers()) > 0 }

// deferrers returns the scopes and stores in which events may wait. The value is true if a handler
// is KeyOrdered. Without such a handler, an earlier release may have left events.
func (p *Processor) deferrers() map[deferredKey]bool {
	found := make(map[deferredKey]bool)
	for _, g := range p.routes.groups {
		for _, b := range g.byType {
			if _, ok := b.access.store.(dedup.Deferrer); ok && !p.cfg.Shadow &&
				p.cfg.Replay == nil {
				at := deferredKey{dedup.DeferredPartition{Scope: p.placeOf(b).scope}, b.access}
				found[at] = found[at] || b.Mode == KeyOrdered
			}
		}
	}
	return found
}

// RunDeferred runs the due events of a partition until ctx ends. Events of a Kafka key run in order
// (rule 4).
func (p *Processor) RunDeferred(ctx context.Context, topic string, partition int32) error {
	if _, _, ok := p.copies.topics.Source(topic); ok { // events wait with their source topic
		return nil
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for at, ordered := range p.deferrers() {
		at.Topic, at.Partition = topic, partition
		runner := &deferredRunner{
			p: p, access: at.access, part: p.deferredPartitions.of(at),
			slots: make(chan struct{}, queuesAtOnce), restUntil: make(map[string]time.Time),
		}
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
	restUntil map[string]time.Time // end of the pause of a queue; zero while the queue runs
	abandoned error
}

// anyDeferred reports whether an event waits in a partition without KeyOrdered handlers. The store
// is asked at each assignment, because members with the earlier release may have deferred more.
func (r *deferredRunner) anyDeferred(ctx context.Context) (some bool) {
	err := r.access.insistOn(
		ctx,
		&waitBudget{left: idemtype.Forever},
		callLook,
		"look for deferred events",
		func() (bool, error) {
			err := within(ctx, txSlack, func(ctx context.Context) error {
				queues, err := r.part.deferrer.Queues(ctx, r.part.id, "", 2)
				some = len(queues) > 0
				return err
			})
			final := ctx.Err() != nil ||
				!errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
			return final, err
		},
	)
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
			// Due queues without a slot wait until a running queue signals its end.
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
	// dueAtOnce limits the queues of one look. The limit exceeds the number of running queues,
	// because these stay due until their end.
	dueAtOnce = 8 * queuesAtOnce
	// stuckWait is the pause of a queue without a handler for the head. Only another release can
	// have such a handler.
	stuckWait = 30 * time.Second
)

// round runs due queues. A queue without a handler for the head gives up its turn, and so blocks no
// other queue. moved is true if other queues may be the longest due now.
func (r *deferredRunner) round(
	ctx context.Context, heads []dedup.Deferred,
) (moved bool, err error) {
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
	r.p.log.WarnContext(
		ctx, "deferred events are left where they are", "topic", r.part.id.Topic, "partition",
		r.part.id.Partition, "queues", len(stuck), "key", first.String(), "error",
		r.p.errorText(firstErr),
	)
	return true, r.postponeQueues(ctx, stuckWait, stuck...)
}

// postponeQueues lets queues wait for their next turn.
func (r *deferredRunner) postponeQueues(
	ctx context.Context, wait time.Duration, queues ...string,
) error {
	began := time.Now()
	err := within(
		ctx, txSlack,
		func(ctx context.Context) error {
			return r.part.deferrer.Delay(ctx, r.part.id, wait, queues...)
		},
	)
	switch {
	case err == nil:
		r.access.up(ctx, began)
	case ctx.Err() == nil:
		r.access.down(ctx, began, err)
	}
	return err
}

func (r *deferredRunner) due(
	ctx context.Context,
) (heads []dedup.Deferred, next time.Duration, err error) {
	began := time.Now()
	err = within(ctx, txSlack, func(ctx context.Context) (err error) {
		heads, next, err = r.part.deferrer.Due(ctx, r.part.id, dueAtOnce)
		return err
	})
	switch {
	case err == nil:
		r.access.succeeded(ctx, began, callLook)
		if len(heads) < dueAtOnce {
			r.forget(heads)
		}
	case ctx.Err() == nil:
		r.access.failed(ctx, began, err, callLook)
	}
	return heads, next, err
}

// forget removes paused queues that are not due any longer. heads are those of all due queues.
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

// isBusy reports whether a queue runs or is paused.
func (r *deferredRunner) isBusy(queue string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, known := r.restUntil[queue]
	return known && (until.IsZero() || time.Now().Before(until))
}

// begin runs a queue if it is not running and a slot is free.
func (r *deferredRunner) begin(ctx context.Context, head dedup.Deferred) (begun bool) {
	if r.isBusy(head.Queue) {
		return false
	}
	select {
	case r.slots <- struct{}{}:
	default:
		return false
	}
	// Another worker may have begun the queue: one that has read the copy of a replay, or an earlier
	// owner. The lanes must know the queue before its head is dead (rule 4).
	if !r.part.has(head.Queue) {
		r.part.set(head.Queue, true)
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
		if rest { // a queue that cannot run now is not tried again at once
			r.restUntil[head.Queue] = time.Now().Add(deferredEvery)
		} else {
			delete(r.restUntil, head.Queue)
		}
		r.part.signal() // there is a slot, and perhaps more that is due
	})
	return true
}

// takeAhead limits the events behind a head that run together. As a rule, these have not failed.
const takeAhead = 64

// runQueue runs the events of a queue until one must wait. The head has failed before, so it runs
// by itself.
func (r *deferredRunner) runQueue(ctx context.Context, head dedup.Deferred) error {
	for events := []dedup.Deferred{head}; len(events) > 0; {
		goesOn, err := r.runEvents(ctx, events)
		if err != nil {
			if ctx.Err() == nil {
				r.p.log.WarnContext(
					ctx, "deferred event is left where it is", "topic", r.part.id.Topic,
					"partition", r.part.id.Partition, "key", head.Key.String(), "error",
					r.p.errorText(err),
				)
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

// next returns the events of a queue that may run now.
func (r *deferredRunner) next(
	ctx context.Context, queue string,
) (events []dedup.Deferred, err error) {
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

// runEvents runs the first events of a queue, in order. all is true if every event left the queue.
// Otherwise no event ran behind the one that stays.
func (r *deferredRunner) runEvents(
	ctx context.Context, events []dedup.Deferred,
) (all bool, err error) {
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

// staysInQueue reports whether a settled event keeps its place in the queue. The events behind a
// staying event stay too.
func (r *deferredRunner) staysInQueue(t *task) bool {
	if t.destination != destHandler {
		return false
	}
	return t.ending == endRescheduled && t.action.kind == actDelayedRetry &&
		t.route.Mode == KeyOrdered ||
		t.ending == endDead && !t.route.ContinueAfterDead
}

// overtaken reports whether a later attempt has overtaken a deferred event. Another worker that
// takes itself for the owner has postponed such an event. The events behind wait, so the queue is
// read again before it goes on.
func (r *deferredRunner) overtaken(t *task) bool {
	return t.destination == destHandler && t.ending == endRescheduled
}

// block leaves a dead event at the head of the queue, for a person. A postponed event is at its
// place already.
func (r *deferredRunner) block(ctx context.Context, t *task) error {
	if t.ending != endDead {
		return nil
	}
	head := t.deferred.head
	head.Blocked, head.Position = true, t.request.Position
	return r.p.postpone(ctx, t, head)
}

// remove takes events out of their queue for good. After a stop, the next owner finds them handled
// and removes them.
func (r *deferredRunner) remove(ctx context.Context, events []dedup.Deferred) error {
	if len(events) == 0 {
		return nil
	}
	free, err := r.part.holdTable(ctx, &waitBudget{left: idemtype.Forever})
	if err != nil {
		return err
	}
	defer free()
	queue := events[0].Queue
	return r.access.repeat(
		ctx,
		&waitBudget{left: idemtype.Forever},
		"remove deferred events",
		func(ctx context.Context) error {
			empty, err := r.part.deferrer.Remove(ctx, r.part.id, queue, events...)
			if err == nil && empty {
				r.part.set(queue, false)
			}
			return err
		},
	)
}
