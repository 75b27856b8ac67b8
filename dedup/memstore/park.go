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

// topic is where queues are apart from others, whichever partition they are in.
type topic struct{ scope, name string }

func topicOf(l dedup.Lot) topic { return topic{l.Scope, l.Topic} }

// queues are those of one topic. Every event is in one of them and in keys.
type queues struct {
	byName map[string]*queue // none is empty
	keys   map[dedup.Key]*parked
}

type queue struct {
	partition int32 // of the last Park
	events    []*parked
	delayed   time.Time // not before this, whatever its head says; zero: not delayed
}

// due is when the head may run.
func (q *queue) due() time.Time {
	if head := q.events[0].due; head.After(q.delayed) {
		return head
	}
	return q.delayed
}

// parked is an event that waits. Its Wait says nothing: due does.
type parked struct {
	dedup.Parked
	due  time.Time
	turn uint64 // among those that are due at one instant
}

// dueAt gives p its turn behind all others that are due then.
func (s *Store) dueAt(p *parked, due time.Time) {
	s.turns++
	p.due, p.turn = due, s.turns
}

// view is what the caller gets, who may do with it what he likes.
func (p *parked) view(now time.Time) dedup.Parked {
	v := p.Parked
	v.Wait, v.Data = p.due.Sub(now), bytes.Clone(p.Data)
	return v
}

// Park implements [dedup.Parker]. All of events are parked or none. With more parked than [Capacity] allows the error matches
// [dedup.ErrFull].
func (s *Store) Park(ctx context.Context, at dedup.Lot, events []dedup.Parked) error {
	for i := range events {
		if err := events[i].Key.Validate(); err != nil {
			return fmt.Errorf("memstore: park: %w", err)
		}
		if events[i].Key.Scope != at.Scope {
			return fmt.Errorf("memstore: park: key %q is not of the scope %q", events[i].Key, at.Scope)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "park")
	if err != nil {
		return err
	}
	l := s.queues[topicOf(at)]
	if l == nil {
		l = &queues{byName: make(map[string]*queue), keys: make(map[dedup.Key]*parked)}
	}
	n := l.unknown(events)
	if s.parked+n > s.capacity {
		return fmt.Errorf("memstore: park: %d new events, %d of %d parked: %w (%w)",
			n, s.parked, s.capacity, dedup.ErrFull, dedup.ErrUnavailable)
	}
	if len(l.keys)+n > 0 {
		s.queues[topicOf(at)] = l
	}
	s.parked += n
	for i := range events {
		s.parkIn(l, &events[i], now)
	}
	for i := range events { // it went to this partition, with whatever was parked in another one
		if q := l.byName[events[i].Queue]; q != nil {
			q.partition = at.Partition
		}
	}
	return nil
}

// unknown is how many of events are not parked, each once.
func (l *queues) unknown(events []dedup.Parked) int {
	unknown := make(map[dedup.Key]struct{})
	for i := range events {
		if l.keys[events[i].Key] == nil {
			unknown[events[i].Key] = struct{}{}
		}
	}
	return len(unknown)
}

func (s *Store) parkIn(l *queues, e *dedup.Parked, now time.Time) {
	if l.keys[e.Key] != nil {
		return // a repeat
	}
	p := &parked{Parked: *e}
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

// Queues implements [dedup.Parker]. A limit below 1 returns none.
func (s *Store) Queues(ctx context.Context, at dedup.Lot, after string, limit int) ([]dedup.Queue, error) {
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
		all = append(all, dedup.Queue{Name: name, Length: len(q.events), Wait: q.due().Sub(now), Blocked: head.Blocked})
	}
	return all, nil
}

// Due implements [dedup.Parker]. Heads that are due at one instant are in the order of the calls that made them so.
func (s *Store) Due(ctx context.Context, at dedup.Lot, limit int) (heads []dedup.Parked, next time.Duration, err error) {
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

// Delay implements [dedup.Parker].
func (s *Store) Delay(ctx context.Context, at dedup.Lot, wait time.Duration, queues ...string) error {
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

// First implements [dedup.Parker].
func (s *Store) First(ctx context.Context, at dedup.Lot, queue string, limit int) (first []dedup.Parked, err error) {
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

// Postpone implements [dedup.Parker].
func (s *Store) Postpone(ctx context.Context, at dedup.Lot, e dedup.Parked) (moved bool, err error) {
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
	if p == nil || p.Queue != e.Queue || !p.Position.Before(e.Position) && (!e.Blocked || p.Position != e.Position) {
		return false, nil
	}
	p.Position, p.Blocked, p.Data = e.Position, e.Blocked, bytes.Clone(e.Data)
	s.dueAt(p, now.Add(e.Wait))
	if q := l.byName[p.Queue]; q.events[0] == p {
		q.delayed = time.Time{}
	}
	return true, nil
}

// Remove implements [dedup.Parker].
func (s *Store) Remove(ctx context.Context, at dedup.Lot, queue string, events ...dedup.Parked) (empty bool, err error) {
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
		if e != nil && e.Queue == queue && e.Position.Generation == p.Generation && e.Position.Retry <= p.Retry {
			s.removeFrom(l, e, now)
		}
	}
	if len(l.keys) == 0 {
		delete(s.queues, topicOf(at))
	}
	return l.byName[queue] == nil, nil
}

func (s *Store) removeFrom(l *queues, e *parked, now time.Time) {
	s.parked--
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
	case i == 0 && !q.events[0].due.After(now): // its turn comes behind the heads that are due already
		s.dueAt(q.events[0], now)
	}
}

// ParkedOf implements [dedup.Parker].
func (s *Store) ParkedOf(ctx context.Context, scope, name string, keys ...dedup.Key) (found []dedup.Parked, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "parked of")
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

// FindParked implements [dedup.Parker].
func (s *Store) FindParked(ctx context.Context, scope, name string, key dedup.Key) (at dedup.Lot, e dedup.Parked, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "find parked")
	if err != nil {
		return dedup.Lot{}, dedup.Parked{}, false, err
	}
	l := s.queues[topic{scope, name}]
	if l == nil || l.keys[key] == nil {
		return dedup.Lot{}, dedup.Parked{}, false, nil
	}
	p := l.keys[key]
	return dedup.Lot{Scope: scope, Topic: name, Partition: l.byName[p.Queue].partition}, p.view(now), true, nil
}
