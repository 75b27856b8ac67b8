package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/observe"
)

// This file is about handlers that are [KeyOrdered]: what waits in the store's table, and who takes it up again. Only
// the owner of a partition puts events there and takes them out, so what it knows of them is what the table holds; should
// another one take himself for the owner, the claim of each event keeps the two apart (rule 4).

// deferredPartitions are what waits, by partition.
type deferredPartitions struct {
	version atomic.Uint64 // grows when a queue begins, or is found
	mu      sync.Mutex
	byID    map[deferredKey]*deferredPartition
}

// deferredKey identifies a deferred partition: handlers of one scope may have stores of their own.
type deferredKey struct {
	dedup.DeferredPartition
	access *storeAccess
}

// deferredPartition is what waits of one partition.
type deferredPartition struct {
	all      *deferredPartitions
	id       dedup.DeferredPartition
	deferrer dedup.Deferrer

	tableMu sync.Mutex // held over a change of the table, so that a queue does not end while somebody joins it

	mu     sync.Mutex
	loaded bool
	queues map[string]struct{} // what waits by Kafka key; what is not in the table may still be here, not the reverse
	wake   chan struct{}
}

// begin forgets what was known of a partition.
func (d *deferredPartitions) begin(topic string, partition int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, part := range d.byID {
		if id.Topic == topic && id.Partition == partition {
			part.mu.Lock()
			part.loaded = false
			part.mu.Unlock()
		}
	}
}

func (d *deferredPartitions) of(at deferredKey) *deferredPartition {
	d.mu.Lock()
	defer d.mu.Unlock()
	part := d.byID[at]
	if part == nil {
		part = &deferredPartition{all: d, id: at.DeferredPartition, deferrer: at.access.store.(dedup.Deferrer), wake: make(chan struct{}, 1)}
		if d.byID == nil {
			d.byID = make(map[deferredKey]*deferredPartition)
		}
		d.byID[at] = part
	}
	return part
}

// deferredPartitionOf returns where an event would wait. Copies have the partition of the record they were made of.
func (p *Processor) deferredPartitionOf(t *task) *deferredPartition {
	return p.deferredPartitions.of(deferredKey{dedup.DeferredPartition{Scope: t.request.Key.Scope, Topic: t.message.Topic, Partition: t.message.Partition}, t.access})
}

// load asks once what waits.
func (d *deferredPartition) load(ctx context.Context) error {
	d.tableMu.Lock()
	defer d.tableMu.Unlock()
	if d.isLoaded() {
		return nil
	}
	const page = 1000
	queues := make(map[string]struct{})
	for after := ""; ; {
		found, err := d.deferrer.Queues(ctx, d.id, after, page)
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
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues, d.loaded = queues, true
	d.all.version.Add(1)
	return nil
}

func (d *deferredPartition) isLoaded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded
}

// signal lets the table be looked at.
func (d *deferredPartition) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *deferredPartition) has(queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.queues[queue]
	return ok
}

// knows reports whether a queue waits, or that it is not known what does.
func (d *deferredPartition) knows(queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.queues[queue]
	return ok || !d.loaded
}

func (d *deferredPartition) set(queue string, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if waits {
		if d.queues == nil {
			d.queues = make(map[string]struct{})
		}
		d.queues[queue] = struct{}{}
		d.all.version.Add(1)
	} else {
		delete(d.queues, queue)
	}
}

// refresh learns that a queue exists which another owner began.
func (d *deferredPartitions) refresh(ctx context.Context, p *Processor, t *task) error {
	part := p.deferredPartitionOf(t)
	part.tableMu.Lock()
	defer part.tableMu.Unlock()
	queue := p.OrderKey(t.message)
	err := p.bounded(ctx, txSlack, func(ctx context.Context) error {
		first, err := part.deferrer.First(ctx, part.id, queue, 1)
		if len(first) > 0 {
			part.set(queue, true)
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
func (b *batch) mustWait(t *task) bool {
	if t.due() > 0 {
		return true
	}
	return t.route.Mode == KeyOrdered && t.deferred == nil && b.p.deferredPartitionOf(t).knows(b.p.OrderKey(t.message))
}

// maxDeferred is how many events are deferred in one call.
const maxDeferred = 256

// deferWaiting defers what belongs behind events that wait, wherever it is in the batch: its key is in nobody's way, and a round
// trip for each of them would be in everybody's.
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
			break // it may belong to a queue: nothing overtakes it
		}
		if t.settled || t.destination != destHandler && !unread || t.route.Mode != KeyOrdered || t.deferred != nil {
			continue
		}
		part := b.p.deferredPartitionOf(t)
		if err := b.insistLoad(part, t.access); err != nil {
			return err
		}
		if part.has(b.p.OrderKey(t.message)) {
			waiting[part] = append(waiting[part], t)
		} else if unread {
			break
		}
	}
	for part, tasks := range waiting {
		for len(tasks) > 0 {
			n := min(len(tasks), maxDeferred)
			known, err := b.mayJoin(part, tasks[:n])
			if err != nil {
				return err
			}
			if err := b.join(part, known); err != nil {
				return err
			}
			tasks = tasks[n:]
		}
	}
	b.advance()
	return nil
}

func (b *batch) insistLoad(part *deferredPartition, access *storeAccess) error {
	if part.isLoaded() {
		return nil
	}
	return b.p.change(b.ctx, b.budget, access, "look for deferred events", part.load)
}

// join puts events at the ends of their queues, but for those whose queue has ended meanwhile. An event that waits already
// stays as it is; a copy of it with another content is dead-lettered, since nobody knows yet which of the two will count.
func (b *batch) join(part *deferredPartition, tasks []*task) error {
	others, err := b.joinAlike(part, tasks)
	for _, t := range others {
		if err != nil {
			return err
		}
		var s step
		s, err = b.p.deadLetterConflict(b.ctx, t, dedup.Answer{Verdict: dedup.Conflict, Known: dedup.Rescheduled})
		t.settled = s.settled
	}
	return err
}

// joinAlike is join but for the copies with another content, which it returns.
func (b *batch) joinAlike(part *deferredPartition, tasks []*task) (others []*task, err error) {
	part.tableMu.Lock()
	defer part.tableMu.Unlock()
	waiting := make([]*task, 0, len(tasks))
	for _, t := range tasks {
		if part.has(b.p.OrderKey(t.message)) {
			waiting = append(waiting, t)
		}
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	known, err := b.deferredOf(part, waiting)
	if err != nil {
		return nil, err
	}
	joined := make([]*task, 0, len(waiting))
	events := make([]dedup.Deferred, 0, len(waiting))
	for _, t := range waiting {
		first, some := known[t.request.Key]
		switch {
		case some && t.request.Position.Generation == 0 && dedup.Differ(first.content, t.request.Fingerprint) && !first.origin.Same(t.request.Origin):
			others = append(others, t)
			continue
		case !some:
			known[t.request.Key] = deferredContent{t.request.Fingerprint, t.request.Origin}
		}
		deferred, err := b.p.newDeferred(t, deadletter.Event{Key: t.request.Key, Position: t.request.Position}, 0)
		if err != nil {
			return nil, err
		}
		joined, events = append(joined, t), append(events, deferred)
	}
	if len(joined) > 0 {
		if err := b.p.deferAll(b.ctx, b.budget, joined[0].access, part, events); err != nil {
			return nil, err
		}
	}
	for _, t := range joined {
		t.settled, t.end, t.settlement = true, endRescheduled, observe.SettledRescheduled
		b.p.notifyDeferred(b.ctx, t)
	}
	return others, nil
}

// deferredContent is what is compared of an event that waits already.
type deferredContent struct {
	content dedup.Fingerprint
	origin  dedup.Origin // of the record itself, whose content may have been repaired since
}

// deferredOf returns what is known of those of some events that wait already. A fingerprint that cannot be made is none: it is not
// compared.
func (b *batch) deferredOf(part *deferredPartition, tasks []*task) (map[dedup.Key]deferredContent, error) {
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
	err := b.p.change(b.ctx, b.budget, tasks[0].access, "look for deferred events", func(ctx context.Context) (err error) {
		found, err = part.deferrer.DeferredOf(ctx, part.id.Scope, part.id.Topic, keys...)
		return err
	})
	for _, e := range found {
		d := deferredContent{origin: e.Origin}
		if m, _, err := fromDeferred(e); err == nil {
			_ = guard(func() (err error) { d.content, err = routes[e.Key].compared(m); return err })
		}
		known[e.Key] = d
	}
	return known, err
}

// deferAll writes to the table until that succeeds.
func (p *Processor) deferAll(ctx context.Context, budget *waitBudget, access *storeAccess, part *deferredPartition, events []dedup.Deferred) error {
	return p.change(ctx, budget, access, "defer", func(ctx context.Context) error { return part.deferrer.Defer(ctx, part.id, events) })
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

	Attempts  int            `json:"attempts"`
	First     millis         `json:"first_failure"`
	Last      millis         `json:"last_failure"`
	Class     idemtype.Class `json:"class"`
	Error     string         `json:"error"`
	NotBefore millis         `json:"not_before"`
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

func (p *Processor) newDeferred(t *task, e deadletter.Event, wait time.Duration) (dedup.Deferred, error) {
	m := t.message
	r := record{
		V: recordVersion, Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: toMillis(m.Time), Key: m.Key, Value: m.Value,
		Attempts: e.Attempts, First: toMillis(e.FirstFailure), Last: toMillis(e.LastFailure), Class: e.Class, Error: safetext.Cut(e.Error, maxErrorText),
		NotBefore: toMillis(e.NotBefore),
	}
	for _, header := range m.Headers {
		r.HeaderNames = append(r.HeaderNames, []byte(header.Key))
		r.Headers = append(r.Headers, header.Value)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return dedup.Deferred{}, fmt.Errorf("defer event %s: %w", t.request.Key, err)
	}
	return dedup.Deferred{
		Key: t.request.Key, Queue: p.OrderKey(m), Position: e.Position, Wait: wait, Origin: t.request.Origin, Data: data,
	}, nil
}

// fromDeferred returns the message of a deferred event, and its history.
func fromDeferred(e dedup.Deferred) (*idemtype.Message, *copied, error) {
	var r record
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return nil, nil, fmt.Errorf("deferred event %s: %w", e.Key, err)
	}
	if r.V != recordVersion {
		return nil, nil, fmt.Errorf("deferred event %s was written by another release (version %d)", e.Key, r.V)
	}
	m := &idemtype.Message{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Time.time(), Key: r.Key, Value: r.Value}
	for i, name := range r.HeaderNames {
		m.Headers = append(m.Headers, idemtype.Header{Key: string(name), Value: r.Headers[i]})
	}
	return m, &copied{Event: deadletter.Event{
		Key: e.Key, Class: r.Class, Error: r.Error, Attempts: r.Attempts, FirstFailure: r.First.time(), LastFailure: r.Last.time(), Position: e.Position,
	}}, nil
}
