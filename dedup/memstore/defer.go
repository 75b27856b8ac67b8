package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
)

// dueAt sets the due time of p, behind all others with the same time.
func (s *Store) dueAt(p *deferred, due time.Time) {
	s.turns++
	p.due, p.turn = due, s.turns
}

// Defer implements [dedup.Deferrer]. All events are deferred, or the call has no effect. If the
// events exceed [Capacity], the error matches [dedup.ErrFull].
func (s *Store) Defer(ctx context.Context, at dedup.DeferredPartition,
	events []dedup.Deferred) error {
	for i := range events {
		if err := events[i].Key.Validate(); err != nil {
			return fmt.Errorf("memstore: defer: %w", err)
		}
		if events[i].Key.Scope != at.Scope {
			return fmt.Errorf("memstore: defer: key %q is not of the scope %q", events[i].Key,
				at.Scope)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "defer")
	if err != nil {
		return err
	}
	l := s.queues[topicOf(at)]
	if l == nil {
		l = &queues{byName: make(map[string]*queue), keys: make(map[dedup.Key]*deferred)}
	}
	n := l.unknown(events)
	if s.deferred+n > s.capacity {
		return fmt.Errorf("memstore: defer: %d new events, %d of %d deferred: %w (%w)",
			n, s.deferred, s.capacity, dedup.ErrFull, dedup.ErrUnavailable)
	}
	if len(l.keys)+n > 0 {
		s.queues[topicOf(at)] = l
	}
	s.deferred += n
	for i := range events {
		s.deferIn(l, &events[i], now)
	}
	for i := range events { // a queue goes to this partition with all its events
		if q := l.byName[events[i].Queue]; q != nil {
			q.partition = at.Partition
		}
	}
	return nil
}

func (s *Store) deferIn(l *queues, e *dedup.Deferred, now time.Time) {
	if l.keys[e.Key] != nil {
		return // a repeat
	}
	p := &deferred{Deferred: *e}
	s.dueAt(p, now.Add(e.Wait))
	p.Blocked, p.Data = false, bytes.Clone(e.Data)
	l.keys[e.Key] = p
	q := l.byName[e.Queue]
	if q == nil {
		q = new(queue)
		l.byName[e.Queue] = q
	}
	q.events = append(q.events, p)
}

// Queues implements [dedup.Deferrer]. A limit below 1 returns no queue.
func (s *Store) Queues(ctx context.Context, at dedup.DeferredPartition, after string,
	limit int) ([]dedup.Queue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "queues")
	if err != nil {
		return nil, err
	}
	l := s.queues[topicOf(at)]
	if l == nil {
		return nil, nil
	}
	var all []dedup.Queue
	for _, name := range slices.Sorted(maps.Keys(l.byName)) {
		if len(all) >= limit {
			break
		}
		q := l.byName[name]
		if q.partition != at.Partition || after != "" && name <= after {
			continue
		}
		head := q.events[0]
		all = append(all, dedup.Queue{Name: name, Length: len(q.events), Wait: q.due().Sub(now),
			Blocked: head.Blocked})
	}
	return all, nil
}

// Due implements [dedup.Deferrer]. Heads that are due at the same time are in the order of the
// calls that set the time.
func (s *Store) Due(ctx context.Context, at dedup.DeferredPartition,
	limit int) (heads []dedup.Deferred, next time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "due")
	if err != nil {
		return nil, 0, err
	}
	var waiting []*queue
	if l := s.queues[topicOf(at)]; l != nil {
		for _, q := range l.byName {
			if q.partition == at.Partition && !q.events[0].Blocked {
				waiting = append(waiting, q)
			}
		}
	}
	slices.SortFunc(waiting, func(a, b *queue) int {
		return cmp.Or(a.due().Compare(b.due()), cmp.Compare(a.events[0].turn, b.events[0].turn))
	})
	for _, q := range waiting {
		if len(heads) >= limit || q.due().After(now) {
			return heads, max(q.due().Sub(now), 0), nil
		}
		heads = append(heads, q.events[0].view(now))
	}
	return heads, -1, nil
}

// Delay implements [dedup.Deferrer].
func (s *Store) Delay(ctx context.Context, at dedup.DeferredPartition, wait time.Duration,
	queues ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "delay")
	if err != nil {
		return err
	}
	l := s.queues[topicOf(at)]
	if l == nil {
		return nil
	}
	for _, name := range queues {
		q := l.byName[name]
		if until := now.Add(wait); q != nil && !q.events[0].Blocked && until.After(q.due()) {
			q.delayed = until
		}
	}
	return nil
}

// First implements [dedup.Deferrer].
func (s *Store) First(ctx context.Context, at dedup.DeferredPartition, queue string,
	limit int) (first []dedup.Deferred, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "first")
	if err != nil {
		return nil, err
	}
	if l := s.queues[topicOf(at)]; l != nil && l.byName[queue] != nil {
		events := l.byName[queue].events
		for _, e := range events[:min(len(events), max(0, limit))] {
			first = append(first, e.view(now))
		}
	}
	return first, nil
}

// Postpone implements [dedup.Deferrer].
func (s *Store) Postpone(ctx context.Context, at dedup.DeferredPartition,
	e dedup.Deferred) (moved bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "postpone")
	if err != nil {
		return false, err
	}
	l := s.queues[topicOf(at)]
	if l == nil {
		return false, nil
	}
	p := l.keys[e.Key]
	if p == nil || p.Queue != e.Queue || !p.Position.Before(e.Position) &&
		(!e.Blocked || p.Position != e.Position) {
		return false, nil
	}
	p.Position, p.Blocked, p.Data = e.Position, e.Blocked, bytes.Clone(e.Data)
	s.dueAt(p, now.Add(e.Wait))
	if q := l.byName[p.Queue]; q.events[0] == p {
		q.delayed = time.Time{}
	}
	return true, nil
}

// Remove implements [dedup.Deferrer].
func (s *Store) Remove(ctx context.Context, at dedup.DeferredPartition, queue string,
	events ...dedup.Deferred) (empty bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "remove")
	if err != nil {
		return false, err
	}
	l := s.queues[topicOf(at)]
	if l == nil {
		return true, nil
	}
	for i := range events {
		e, p := l.keys[events[i].Key], events[i].Position
		if e != nil && e.Queue == queue && e.Position.Generation == p.Generation &&
			e.Position.Retry <= p.Retry {
			s.removeFrom(l, e, now)
		}
	}
	if len(l.keys) == 0 {
		delete(s.queues, topicOf(at))
	}
	return l.byName[queue] == nil, nil
}

func (s *Store) removeFrom(l *queues, e *deferred, now time.Time) {
	s.deferred--
	delete(l.keys, e.Key)
	q := l.byName[e.Queue]
	i := slices.Index(q.events, e)
	q.events = slices.Delete(q.events, i, i+1)
	if i == 0 {
		q.delayed = time.Time{}
	}
	switch {
	case len(q.events) == 0:
		delete(l.byName, e.Queue)
	// behind the heads that are due already
	case i == 0 && !q.events[0].due.After(now):
		s.dueAt(q.events[0], now)
	}
}

// DeferredOf implements [dedup.Deferrer].
func (s *Store) DeferredOf(ctx context.Context, scope, name string,
	keys ...dedup.Key) (found []dedup.Deferred, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "deferred of")
	if err != nil {
		return nil, err
	}
	l := s.queues[topic{scope, name}]
	if l == nil {
		return nil, nil
	}
	for _, key := range keys {
		if p := l.keys[key]; p != nil {
			found = append(found, p.view(now))
		}
	}
	return found, nil
}

// FindDeferred implements [dedup.Deferrer].
func (s *Store) FindDeferred(ctx context.Context, scope, name string,
	key dedup.Key) (at dedup.DeferredPartition, e dedup.Deferred, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "find deferred")
	if err != nil {
		return dedup.DeferredPartition{}, dedup.Deferred{}, false, err
	}
	l := s.queues[topic{scope, name}]
	if l == nil || l.keys[key] == nil {
		return dedup.DeferredPartition{}, dedup.Deferred{}, false, nil
	}
	p := l.keys[key]
	return dedup.DeferredPartition{Scope: scope, Topic: name,
		Partition: l.byName[p.Queue].partition}, p.view(now), true, nil
}
