package events

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
)

// Deferred is an event that is deferred in a store, in the order of the Kafka key, and the queue
// (rule 4).
type Deferred struct {
	Partition dedup.DeferredPartition
	Event     dedup.Deferred
	// Head is the first event of the queue: this event or an earlier one.
	Head dedup.Deferred
	// Behind is the number of other events in the queue, -1 if that is not known.
	Behind int

	deferrer dedup.Deferrer
}

// IsHead reports whether the event is the first of the queue.
func (p *Deferred) IsHead() bool { return p.Head.Key == p.Event.Key }

// blocks reports whether the others of the key wait for a person because of the event.
func (p *Deferred) blocks() bool { return p.IsHead() && p.Head.Blocked }

// After describes the consequence for the other events when the event leaves the queue.
func (p *Deferred) After() string {
	switch {
	case !p.IsHead():
		return fmt.Sprintf(
			"it is no longer deferred; the others of its key still wait for %q", p.Head.Key.ID,
		)
	case p.Behind < 0:
		return "it is no longer deferred; those behind it go on"
	}
	return fmt.Sprintf("it is no longer deferred; %d behind it go on", p.Behind)
}

// findDeferred returns nil if the event is not deferred, or the topic is not known.
func findDeferred(
	ctx context.Context, l *deadletters.NamedStore, key dedup.Key, topic string,
) (*Deferred, error) {
	deferrer, ok := l.Store.(dedup.Deferrer)
	if !ok || topic == "" {
		return nil, nil //nolint:nilnil // most events are not deferred
	}
	part, event, ok, err := deferrer.FindDeferred(ctx, key.Scope, topic, key)
	if err != nil {
		return nil, fmt.Errorf("%s: look for a deferred event: %w", l.Name, err)
	}
	if !ok {
		return nil, nil //nolint:nilnil // see above
	}
	p := &Deferred{deferrer: deferrer, Partition: part, Event: event, Head: event}
	first, err := deferrer.First(ctx, part, event.Queue, 1)
	if err != nil {
		return nil, fmt.Errorf("%s: head of the queue: %w", l.Name, err)
	}
	if len(first) > 0 {
		p.Head = first[0]
	}
	if p.Behind, err = p.boundedLength(ctx); err != nil {
		return nil, fmt.Errorf("%s: length of the queue: %w", l.Name, err)
	}
	p.Behind = max(p.Behind-1, -1)
	return p, nil
}

const (
	queuesAtOnce = 1000
	queuePages   = 100             // then the length is not known
	lengthWait   = 3 * time.Second // the same
)

// lengthLimit is the time for the length of one queue. The caller's deadline may hold for several
// events, so each length takes a third of the time that is left.
func lengthLimit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return lengthWait
	}
	return min(lengthWait, time.Until(deadline)/3)
}

// boundedLength returns -1 if the store cannot count the events of the queue in a short time. A long
// queue must not keep a person from its head.
func (p *Deferred) boundedLength(ctx context.Context) (int, error) {
	short, cancel := context.WithTimeout(ctx, lengthLimit(ctx))
	defer cancel()
	n, err := p.length(short)
	if err != nil && ctx.Err() == nil {
		return -1, nil
	}
	return n, err
}

// length looks for the queue of the event, from the last name that is surely before it.
func (p *Deferred) length(ctx context.Context) (int, error) {
	name := p.Event.Queue
	after := name[:max(len(name)-1, 0)]
	if len(name) > dedup.MaxPart {
		after = "" // those are in an order of their own
	}
	for range queuePages {
		queues, err := p.deferrer.Queues(ctx, p.Partition, after, queuesAtOnce)
		if err != nil {
			return 0, err
		}
		for _, q := range queues {
			if q.Name == name {
				return q.Length, nil
			}
		}
		if len(queues) < queuesAtOnce {
			break
		}
		after = queues[len(queues)-1].Name
	}
	return 0, nil
}

// takeOutTries bounds how often a consumer may be quicker in postponing the event.
const takeOutTries = 5

// TakeOut removes a settled event from its queue, if the event is deferred now. It looks for the
// event again, also after each removal: a consumer may have deferred or moved the event since
// [Find]. Deferred is then the place that the event has left, nil without one.
func (e *Event) TakeOut(ctx context.Context) error {
	e.Deferred = nil
	for range takeOutTries {
		now, err := findDeferred(ctx, e.Store, e.Key, e.topic)
		if err != nil {
			return fmt.Errorf(
				"the event is settled; whether it is still deferred is not known, repeat the command with --type %q --topic %q: %w",
				e.Key.Type, e.topic, err,
			)
		}
		if now == nil {
			return nil
		}
		e.Deferred = now
		left := dedup.Deferred{Key: e.Key, Position: now.Event.Position}
		if _, err := now.deferrer.Remove(ctx, now.Partition, now.Event.Queue, left); err != nil {
			return fmt.Errorf(
				"%s: the event is settled and still deferred, repeat the command with --type %q --topic %q: %w",
				e.Store.Name, e.Key.Type, e.topic, err,
			)
		}
	}
	return fmt.Errorf(
		"%s: the event is settled, but a consumer keeps moving it in its queue: repeat the command with --type %q --topic %q",
		e.Store.Name, e.Key.Type, e.topic,
	)
}

// Unblock lets an event that was forgotten run at once, as the first copy of the next generation, if
// the event is deferred and blocked now. It looks for the event again: a consumer may have given the
// event up since [Find]. Deferred is then the place of the event now, nil without one.
func (e *Event) Unblock(ctx context.Context) error {
	p, err := findDeferred(ctx, e.Store, e.Key, e.topic)
	if err != nil {
		return fmt.Errorf(
			"the event is forgotten; whether it is still blocked is not known, repeat the command with --type %q --topic %q: %w",
			e.Key.Type, e.topic, err,
		)
	}
	e.Deferred = p
	if p == nil || !p.Event.Blocked {
		return nil
	}
	open := p.Event
	open.Blocked, open.Wait = false, 0
	open.Position = dedup.Position{Generation: open.Position.Generation + 1}
	moved, err := p.deferrer.Postpone(ctx, p.Partition, open)
	if err != nil {
		return fmt.Errorf(
			"%s: the event is forgotten and still blocked, repeat the command with --type %q --topic %q: %w",
			e.Store.Name, e.Key.Type, p.Partition.Topic, err,
		)
	}
	if !moved {
		return fmt.Errorf(
			"%s: the event is forgotten, and another caller has moved it in its queue: see idem event get",
			e.Store.Name,
		)
	}
	if p.IsHead() {
		p.Head = open
	}
	p.Event = open
	return nil
}
