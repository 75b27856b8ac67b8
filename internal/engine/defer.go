package engine

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/observe"
)

// This file defers events of KeyOrdered handlers. Such events wait in a table of the store behind a
// failed event of their Kafka key. Only the owner of a partition changes its queues. If two workers
// take themselves for the owner, the claim of each event keeps the two apart (rule 4).

// deferredPartitionOf returns the partition that the event is deferred in. A copy has the partition
// of its original record.
func (p *Processor) deferredPartitionOf(t *task) *deferredPartition {
	return p.deferredPartitions.of(
		deferredKey{
			dedup.DeferredPartition{
				Scope: t.request.Key.Scope, Topic: t.message.Topic, Partition: t.message.Partition,
			},
			t.access,
		},
	)
}

// mustWait reports whether an event may not join a group: the event is not due, or the Kafka key
// may have a queue.
func (p *Processor) mustWait(t *task) bool {
	if t.due() > 0 {
		return true
	}
	return t.route.Mode == KeyOrdered && t.deferred == nil &&
		p.deferredPartitionOf(t).knows(p.orderKeyOf(t))
}

// maxDeferred limits the events that are deferred in one call of the store.
const maxDeferred = 256

// loadDeferred reads the queues of a partition, once. The lanes of the partition take turns.
func (p *Processor) loadDeferred(ctx context.Context, part *deferredPartition, t *task) error {
	for try := 1; !part.isLoaded(); {
		if ctx.Err() != nil {
			return stopCause(ctx)
		}
		began, err := part.loadPage(ctx, t.budget)
		switch {
		case err == nil && began.IsZero(): // another lane has read the last page
		case err == nil:
			t.access.succeeded(ctx, began, callLook)
			try = 1
		case began.IsZero():
			return err
		default:
			stop := t.access.pause(
				ctx, t.budget, callLook, "look for deferred events", try, began, err,
			)
			if stop != nil {
				return stop
			}
			try++
		}
	}
	return nil
}

// deferBehind defers events behind those of their Kafka keys that wait already.
func (p *Processor) deferBehind(
	ctx context.Context, part *deferredPartition, tasks []*task,
) error {
	for chunk := range slices.Chunk(tasks, maxDeferred) {
		allowed, err := p.mayJoin(ctx, part, chunk)
		if err != nil {
			return err
		}
		if err := p.joinQueues(ctx, part, allowed); err != nil {
			return err
		}
	}
	return nil
}

// joinQueues appends events to their queues. A queue may have ended meanwhile: its events are left
// out. An event that is deferred already stays unchanged. A copy of such an event with another
// content becomes a dead letter, because either content may count in the end.
func (p *Processor) joinQueues(ctx context.Context, part *deferredPartition, tasks []*task) error {
	others, err := p.joinAlike(ctx, part, tasks)
	for _, t := range others {
		if err != nil {
			return err
		}
		var s attemptResult
		s, err = p.deadLetterConflict(
			ctx, t, dedup.Answer{Verdict: dedup.Conflict, Known: dedup.Rescheduled},
		)
		t.settled = s.settled
	}
	return err
}

// joinAlike does the work of joinQueues, and returns the copies with another content unsettled.
func (p *Processor) joinAlike(
	ctx context.Context, part *deferredPartition, tasks []*task,
) (others []*task, err error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	free, err := part.holdTable(ctx, tasks[0].budget)
	if err != nil {
		return nil, err
	}
	defer free()
	waiting := make([]*task, 0, len(tasks))
	for _, t := range tasks {
		if part.has(p.orderKeyOf(t)) {
			waiting = append(waiting, t)
		}
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	known, err := p.deferredOf(ctx, part, waiting)
	if err != nil {
		return nil, err
	}
	joined := make([]*task, 0, len(waiting))
	events := make([]dedup.Deferred, 0, len(waiting))
	for _, t := range waiting {
		first, some := known[t.request.Key]
		switch {
		case some && t.request.Position.Generation == 0 &&
			dedup.Differ(first.content, t.request.Fingerprint) &&
			!t.message.SameRecord(first.origin):
			others = append(others, t)
			continue
		case !some:
			known[t.request.Key] = deferredContent{t.request.Fingerprint, t.request.Origin}
		}
		deferred, err := newDeferred(
			t, p.orderKeyOf(t),
			deadletter.Event{Key: t.request.Key, Position: t.request.Position},
			max(0, time.Until(t.askedFor)),
		)
		if err != nil {
			return nil, err
		}
		joined, events = append(joined, t), append(events, deferred)
	}
	if len(joined) > 0 {
		if err := p.deferAll(ctx, joined[0].budget, joined[0].access, part, events); err != nil {
			return nil, err
		}
	}
	for _, t := range joined {
		t.settled, t.ending, t.kind = true, endRescheduled, observe.SettledRescheduled
		p.notifyDeferred(ctx, t)
	}
	return others, nil
}

// deferredContent identifies the content of a deferred event.
type deferredContent struct {
	content dedup.Fingerprint
	origin  dedup.Origin // the record; a person may have repaired the content
}

// deferredOf returns the contents of those events that are deferred already. An event without a
// readable fingerprint is not compared.
func (p *Processor) deferredOf(
	ctx context.Context, part *deferredPartition, tasks []*task,
) (map[dedup.Key]deferredContent, error) {
	known := make(map[dedup.Key]deferredContent)
	routes := make(map[dedup.Key]*bound)
	var keys []dedup.Key
	for _, t := range tasks {
		if t.request.Fingerprint != (dedup.Fingerprint{}) && routes[t.request.Key] == nil {
			routes[t.request.Key] = t.route
			keys = append(keys, t.request.Key)
		}
	}
	if len(keys) == 0 {
		return known, nil
	}
	var found []dedup.Deferred
	err := tasks[0].access.repeatLook(
		ctx,
		tasks[0].budget,
		"look for deferred events",
		func(ctx context.Context) (err error) {
			found, err = part.deferrer.DeferredOf(ctx, part.id.Scope, part.id.Topic, keys...)
			return err
		},
	)
	for _, e := range found {
		d := deferredContent{origin: e.Origin}
		if m, _, err := fromDeferred(e); err == nil {
			_ = guard(func() (err error) {
				content, err := routes[e.Key].fingerprintOf(decoded.Known(nil), m)
				d.content = content.First
				return err
			})
		}
		known[e.Key] = d
	}
	return known, err
}

// deferAll writes events to the table, with repetitions until the store answers.
func (p *Processor) deferAll(
	ctx context.Context, budget *waitBudget, access *storeAccess, part *deferredPartition,
	events []dedup.Deferred,
) error {
	return access.repeat(
		ctx, budget, "defer",
		func(ctx context.Context) error { return part.deferrer.Defer(ctx, part.id, events) },
	)
}
