package main

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// This file is about events that are parked in a ledger, in the order of their Kafka keys (rule 4).

// parkedAt is a parked event and its queue.
type parkedAt struct {
	parker dedup.Parker
	lot    dedup.Lot
	event  dedup.Parked
	head   dedup.Parked // of the queue: the event itself, or what it waits for
	behind int          // how many wait in the queue beside it; -1: not known
}

func (p *parkedAt) isHead() bool { return p.head.Key == p.event.Key }

// after says what becomes of the others when the event has left its queue.
func (p *parkedAt) after() string {
	switch {
	case !p.isHead():
		return fmt.Sprintf("it is no longer parked; the others of its key still wait for %q", p.head.Key.ID)
	case p.behind < 0:
		return "it is no longer parked; those behind it go on"
	}
	return fmt.Sprintf("it is no longer parked; %d behind it go on", p.behind)
}

// findParked returns nil if the event is not parked, or its topic is not known.
func (l *ledger) findParked(ctx context.Context, key dedup.Key, topic string) (*parkedAt, error) {
	parker, ok := l.store.(dedup.Parker)
	if !ok || topic == "" {
		return nil, nil //nolint:nilnil // most events are not parked
	}
	lot, event, ok, err := parker.FindParked(ctx, key.Scope, topic, key)
	if err != nil {
		return nil, fmt.Errorf("%s: look for a parked event: %w", l.name, err)
	}
	if !ok {
		return nil, nil //nolint:nilnil // see above
	}
	p := &parkedAt{parker: parker, lot: lot, event: event, head: event}
	first, err := parker.First(ctx, lot, event.Queue, 1)
	if err != nil {
		return nil, fmt.Errorf("%s: head of the queue: %w", l.name, err)
	}
	if len(first) > 0 {
		p.head = first[0]
	}
	if p.behind, err = p.length(ctx); err != nil {
		return nil, fmt.Errorf("%s: length of the queue: %w", l.name, err)
	}
	p.behind = max(p.behind-1, -1)
	return p, nil
}

const (
	queuesAtOnce = 1000
	queuePages   = 100 // then the length is not known
)

// length looks for the queue of the event among all, from the last name on that is surely before it.
func (p *parkedAt) length(ctx context.Context) (int, error) {
	name := p.event.Queue
	after := name[:max(len(name)-1, 0)]
	if len(name) > dedup.MaxPart {
		after = "" // those are in an order of their own
	}
	for range queuePages {
		queues, err := p.parker.Queues(ctx, p.lot, after, queuesAtOnce)
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

// unparkTries bounds how often a consumer may be quicker in postponing the event.
const unparkTries = 5

// unpark takes the event out of its queue, wherever its consumer has moved it meanwhile.
func (e *eventAt) unpark(ctx context.Context) error {
	p := e.parked
	for range unparkTries {
		if _, err := p.parker.Remove(ctx, p.lot, p.event.Queue, dedup.Parked{Key: e.key, Position: p.event.Position}); err != nil {
			return fmt.Errorf("%s: it is given up and still parked, repeat the command: %w", e.ledger.name, err)
		}
		_, now, ok, err := p.parker.FindParked(ctx, e.key.Scope, p.lot.Topic, e.key)
		if err != nil {
			return fmt.Errorf("%s: it is given up; whether it is still parked is not known, repeat the command: %w", e.ledger.name, err)
		}
		if !ok {
			return nil
		}
		p.event = now
	}
	return fmt.Errorf("%s: it is given up and still parked, since a consumer keeps moving it: repeat the command", e.ledger.name)
}

// unblock lets a parked event run that was given up: as the first copy of its next generation, at once.
func (e *eventAt) unblock(ctx context.Context) error {
	p := e.parked
	open := p.event
	open.Blocked, open.Wait = false, 0
	open.Position = dedup.Position{Generation: open.Position.Generation + 1}
	moved, err := p.parker.Postpone(ctx, p.lot, open)
	if err != nil {
		return fmt.Errorf("%s: it is forgotten and still blocked, repeat the command with --type %q --topic %q: %w",
			e.ledger.name, e.key.Type, p.lot.Topic, err)
	}
	if !moved {
		return fmt.Errorf("%s: it is forgotten, and somebody else has moved it in its queue: see idem event get", e.ledger.name)
	}
	return nil
}
