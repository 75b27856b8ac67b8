package idem

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file is about handlers that are [KeyOrdered]: what waits in the store's table, and who takes it up again. Only
// the owner of a partition puts events there and takes them out, so what it knows of them is what the table holds; should
// another one take himself for the owner, the claim of each event keeps the two apart (rule 4).

// deferredPartitions are what waits, by partition.
type deferredPartitions struct {
	version atomic.Uint64 // grows when a queue begins, or is found
	mu      sync.Mutex
	byID    map[deferredAt]*deferredPartition
}

// deferredAt is where a lot is: handlers of one scope may have stores of their own.
type deferredAt struct {
	dedup.DeferredPartition
	access *storeAccess
}

// deferredPartition is what waits of one partition.
type deferredPartition struct {
	all      *deferredPartitions
	id       dedup.DeferredPartition
	deferrer dedup.Deferrer

	running sync.Mutex // held over a change of the table, so that a queue does not end while somebody joins it

	mu     sync.Mutex
	loaded bool
	queues map[string]struct{} // what waits by Kafka key; what is not in the table may still be here, not the reverse
	wake   chan struct{}
}

// begin forgets what was known of a partition.
func (s *deferredPartitions) begin(topic string, partition int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.byID {
		if id.Topic == topic && id.Partition == partition {
			l.mu.Lock()
			l.loaded = false
			l.mu.Unlock()
		}
	}
}

func (s *deferredPartitions) of(at deferredAt) *deferredPartition {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byID[at]
	if l == nil {
		l = &deferredPartition{all: s, id: at.DeferredPartition, deferrer: at.access.store.(dedup.Deferrer), wake: make(chan struct{}, 1)}
		if s.byID == nil {
			s.byID = make(map[deferredAt]*deferredPartition)
		}
		s.byID[at] = l
	}
	return l
}

// deferredPartitionOf returns where an event would wait. Copies have the partition of the record they were made of.
func (p *Processor) deferredPartitionOf(d *task) *deferredPartition {
	return p.deferredPartitions.of(deferredAt{dedup.DeferredPartition{Scope: d.request.Key.Scope, Topic: d.message.Topic, Partition: d.message.Partition}, d.access})
}

// load asks once what waits.
func (l *deferredPartition) load(ctx context.Context) error {
	l.running.Lock()
	defer l.running.Unlock()
	if l.isLoaded() {
		return nil
	}
	const page = 1000
	queues := make(map[string]struct{})
	for after := ""; ; {
		found, err := l.deferrer.Queues(ctx, l.id, after, page)
		if err != nil {
			return err
		}
		for _, q := range found {
			queues[q.Name] = struct{}{}
			after = q.Name
		}
		if len(found) < page {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queues, l.loaded = queues, true
	l.all.version.Add(1)
	return nil
}

func (l *deferredPartition) isLoaded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.loaded
}

// signal lets the table be looked at.
func (l *deferredPartition) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *deferredPartition) has(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.queues[queue]
	return ok
}

// knows reports whether a queue waits, or that it is not known what does.
func (l *deferredPartition) knows(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.queues[queue]
	return ok || !l.loaded
}

func (l *deferredPartition) set(queue string, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if waits {
		if l.queues == nil {
			l.queues = make(map[string]struct{})
		}
		l.queues[queue] = struct{}{}
		l.all.version.Add(1)
	} else {
		delete(l.queues, queue)
	}
}

// refresh learns that a queue exists which another owner began.
func (s *deferredPartitions) refresh(ctx context.Context, p *Processor, d *task) error {
	l := p.deferredPartitionOf(d)
	l.running.Lock()
	defer l.running.Unlock()
	queue := p.OrderKey(d.message)
	err := p.bounded(ctx, txSlack, func(ctx context.Context) error {
		first, err := l.deferrer.First(ctx, l.id, queue, 1)
		if len(first) > 0 {
			l.set(queue, true)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: look for deferred events: %w", dedup.ErrUnavailable, err)
	}
	return nil
}

// deferredEvent is where an event waits that was taken from there.
type deferredEvent struct {
	part *deferredPartition
	head dedup.Deferred
}

// mustWait reports whether an event may not join a run that others have begun: it is not due, or waits for others of its
// Kafka key.
func (b *batch) mustWait(e *task) bool {
	if e.due() > 0 {
		return true
	}
	return e.route.mode == keyOrdered && e.deferred == nil && b.p.deferredPartitionOf(e).knows(b.p.OrderKey(e.message))
}

// maxDeferred is how many events are deferred in one call.
const maxDeferred = 256

// deferWaiting defers what belongs behind events that wait, wherever it is in the batch: its key is in nobody's way, and a round
// trip for each of them would be in everybody's.
func (b *batch) deferWaiting() error {
	version := b.p.deferredPartitions.version.Load()
	if !b.p.ordered || b.deferredAt == version {
		return nil
	}
	b.deferredAt = version
	waiting := make(map[*deferredPartition][]*task)
	for i := b.next; i < len(b.tasks); i++ {
		e := b.look(i)
		unread := e.destination == forReading
		if unread && (e.request.Key.ID == "" || e.route.mode != keyOrdered || e.deferred != nil) {
			break // it may belong to a queue: nothing overtakes it
		}
		if e.settled || e.destination != forHandler && !unread || e.route.mode != keyOrdered || e.deferred != nil {
			continue
		}
		l := b.p.deferredPartitionOf(e)
		if err := b.insistLoad(l, e.access); err != nil {
			return err
		}
		if l.has(b.p.OrderKey(e.message)) {
			waiting[l] = append(waiting[l], e)
		} else if unread {
			break
		}
	}
	for l, entries := range waiting {
		for len(entries) > 0 {
			n := min(len(entries), maxDeferred)
			known, err := b.mayJoin(l, entries[:n])
			if err != nil {
				return err
			}
			if err := b.join(l, known); err != nil {
				return err
			}
			entries = entries[n:]
		}
	}
	b.advance()
	return nil
}

func (b *batch) insistLoad(l *deferredPartition, of *storeAccess) error {
	if l.isLoaded() {
		return nil
	}
	return b.p.change(b.ctx, b.budget, of, "look for deferred events", l.load)
}

// join puts events at the ends of their queues, but for those whose queue has ended meanwhile. An event that waits already
// stays as it is; a copy of it with another content is dead-lettered, since nobody knows yet which of the two will count.
func (b *batch) join(l *deferredPartition, entries []*task) error {
	others, err := b.joinAlike(l, entries)
	for _, e := range others {
		if err != nil {
			return err
		}
		var s step
		s, err = b.p.deadLetterConflict(b.ctx, e, dedup.Answer{Verdict: dedup.Conflict, Known: dedup.Rescheduled})
		e.settled = s.settled
	}
	return err
}

// joinAlike is join but for the copies with another content, which it returns.
func (b *batch) joinAlike(l *deferredPartition, entries []*task) (others []*task, err error) {
	l.running.Lock()
	defer l.running.Unlock()
	waiting := make([]*task, 0, len(entries))
	for _, e := range entries {
		if l.has(b.p.OrderKey(e.message)) {
			waiting = append(waiting, e)
		}
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	known, err := b.deferredOf(l, waiting)
	if err != nil {
		return nil, err
	}
	joined := make([]*task, 0, len(waiting))
	events := make([]dedup.Deferred, 0, len(waiting))
	for _, e := range waiting {
		first, some := known[e.request.Key]
		switch {
		case some && e.request.Position.Generation == 0 && dedup.Differ(first.content, e.request.Fingerprint) && !first.origin.Same(e.request.Origin):
			others = append(others, e)
			continue
		case !some:
			known[e.request.Key] = deferred{e.request.Fingerprint, e.request.Origin}
		}
		deferred, err := b.p.newDeferred(e, history{key: e.request.Key, position: e.request.Position}, 0)
		if err != nil {
			return nil, err
		}
		joined, events = append(joined, e), append(events, deferred)
	}
	if len(joined) > 0 {
		if err := b.p.deferAll(b.ctx, b.budget, joined[0].access, l, events); err != nil {
			return nil, err
		}
	}
	for _, e := range joined {
		e.settled, e.end, e.settlement = true, endRescheduled, SettledRescheduled
		b.p.notifyDeferred(b.ctx, e)
	}
	return others, nil
}

// deferred is what is compared of an event that waits already.
type deferred struct {
	content dedup.Fingerprint
	origin  dedup.Origin // of the record itself, whose content may have been repaired since
}

// deferredOf returns what is known of those of some events that wait already. A fingerprint that cannot be made is none: it is not
// compared.
func (b *batch) deferredOf(l *deferredPartition, entries []*task) (map[dedup.Key]deferred, error) {
	known := make(map[dedup.Key]deferred)
	routes := make(map[dedup.Key]*bound)
	var keys []dedup.Key
	for _, e := range entries {
		if e.request.Fingerprint != (dedup.Fingerprint{}) && routes[e.request.Key] == nil {
			routes[e.request.Key] = e.route
			keys = append(keys, e.request.Key)
		}
	}
	if len(keys) == 0 {
		return known, nil
	}
	var found []dedup.Deferred
	err := b.p.change(b.ctx, b.budget, entries[0].access, "look for deferred events", func(ctx context.Context) (err error) {
		found, err = l.deferrer.DeferredOf(ctx, l.id.Scope, l.id.Topic, keys...)
		return err
	})
	for _, e := range found {
		d := deferred{origin: e.Origin}
		if m, err := fromDeferred(e); err == nil {
			_ = guard(func() (err error) { d.content, err = routes[e.Key].compared(m); return err })
		}
		known[e.Key] = d
	}
	return known, err
}

// deferAll writes to the table until that succeeds.
func (p *Processor) deferAll(ctx context.Context, budget *waitBudget, ledger *storeAccess, l *deferredPartition, events []dedup.Deferred) error {
	return p.change(ctx, budget, ledger, "defer", func(ctx context.Context) error { return l.deferrer.Defer(ctx, l.id, events) })
}

// record is a deferred event's message and history, as the table keeps it.
type record struct {
	V           int      `json:"v"`
	Topic       string   `json:"topic"`
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	Time        millis   `json:"time"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	HeaderNames [][]byte `json:"header_names"` // bytes: a name need not be UTF-8
	Headers     [][]byte `json:"headers"`

	Attempts  int    `json:"attempts"`
	First     millis `json:"first_failure"`
	Last      millis `json:"last_failure"`
	Class     Class  `json:"class"`
	Error     string `json:"error"`
	NotBefore millis `json:"not_before"`
}

// millis is a time as Kafka has it: milliseconds since 1970, whatever the year. Null is none.
type millis struct{ ms *int64 }

func toMillis(t time.Time) millis {
	if t.IsZero() {
		return millis{}
	}
	ms := t.UnixMilli()
	return millis{&ms}
}

func (m millis) time() time.Time {
	if m.ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*m.ms).UTC()
}

// MarshalJSON and UnmarshalJSON make it a number.
func (m millis) MarshalJSON() ([]byte, error) { return json.Marshal(m.ms) }

func (m *millis) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &m.ms) }

// recordVersion is written with each record; another one is not read (rule 35).
const recordVersion = 1

func (p *Processor) newDeferred(d *task, h history, wait time.Duration) (dedup.Deferred, error) {
	m := d.message
	r := record{
		V: recordVersion, Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: toMillis(m.Time), Key: m.Key, Value: m.Value,
		Attempts: h.attempts, First: toMillis(h.first), Last: toMillis(h.last), Class: h.class, Error: cutText(h.err, maxErrorText),
		NotBefore: toMillis(h.notBefore),
	}
	for _, header := range m.Headers {
		r.HeaderNames = append(r.HeaderNames, []byte(header.Key))
		r.Headers = append(r.Headers, header.Value)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return dedup.Deferred{}, fmt.Errorf("defer event %s: %w", d.request.Key, err)
	}
	return dedup.Deferred{
		Key: d.request.Key, Queue: p.OrderKey(m), Position: h.position, Wait: wait, Origin: d.request.Origin, Data: data,
	}, nil
}

// fromDeferred is the message of a deferred event, as a copy of its position.
func fromDeferred(e dedup.Deferred) (*Message, error) {
	var r record
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return nil, fmt.Errorf("deferred event %s: %w", e.Key, err)
	}
	if r.V != recordVersion {
		return nil, fmt.Errorf("deferred event %s was written by another release (version %d)", e.Key, r.V)
	}
	m := &Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Time.time(), Key: r.Key, Value: r.Value}
	for i, name := range r.HeaderNames {
		m.Headers = append(m.Headers, Header{Key: string(name), Value: r.Headers[i]})
	}
	m.copied = &copied{history: history{
		key: e.Key, class: r.Class, err: r.Error, attempts: r.Attempts, first: r.First.time(), last: r.Last.time(), position: e.Position,
	}}
	return m, nil
}
