package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

var _ dedup.Deferrer = (*Store)(nil)

// bytesPerStatement is the amount of data of deferred events from which on a statement is full.
// Servers limit the size of a statement: 16 MiB in MariaDB.
const bytesPerStatement = 1 << 20

// Defer implements [dedup.Deferrer], in tables deferred_queues and deferred_events. In Postgres
// these are the tables of package pgstore. Defer waits some seconds at most for other calls on the
// same queues. Then the error matches [dedup.ErrUnavailable].
func (s *Store) Defer(ctx context.Context, part dedup.DeferredPartition,
	events []dedup.Deferred) error {
	names := make([]string, len(events))
	keys := make([]dedup.Key, len(events))
	for i := range events {
		e := &events[i]
		names[i], keys[i] = e.Queue, e.Key
		err := e.Key.Validate()
		if err == nil && e.Key.Scope != part.Scope {
			err = fmt.Errorf("%w: %q is of another scope than its partition, %q", dedup.ErrKey,
				e.Key, part.Scope)
		}
		if err != nil {
			return s.wrong("defer", err)
		}
	}
	if len(events) == 0 {
		return nil
	}
	locks := queueKeys(names)
	return s.ownTx(ctx, "defer", nil, func(ctx context.Context, w *work) error {
		queues, err := w.lockQueues(ctx, part, locks)
		if err != nil {
			return err
		}
		known := make(map[dedup.Key]bool)
		err = w.placesOf(ctx, part, keys, func(p *deferredPlace) { known[p.key] = true })
		if err != nil {
			return err
		}
		placed, added := placeEvents(queues, known, part.Partition, events, w.now)
		if err := w.addQueues(ctx, part, added); err != nil {
			return err
		}
		var changed []*deferredQueue
		for _, key := range locks {
			if q := queues[string(key)]; q != nil {
				changed = append(changed, q)
			}
		}
		if err := w.changeQueues(ctx, part, changed...); err != nil {
			return err
		}
		return w.addEvents(ctx, part, placed)
	})
}

// addEvents inserts events. If another transaction has deferred one meanwhile, in another queue, a
// repeat of the call finds the event.
func (w *work) addEvents(ctx context.Context, part dedup.DeferredPartition,
	placed []placedEvent) error {
	for len(placed) > 0 {
		var rows [][]any
		for size := 0; len(rows) < len(placed) && len(rows) < rowsPerStatement &&
			size < bytesPerStatement; {
			p := &placed[len(rows)]
			size += len(p.event.Data)
			rows = append(rows, w.eventRow(part, p))
		}
		if err := deferredEvents.add(ctx, w.q, w.d, rows); err != nil {
			return err
		}
		placed = placed[len(rows):]
	}
	return nil
}

// eventRow returns a row in the order of the columns of deferredEvents.
func (w *work) eventRow(part dedup.DeferredPartition, p *placedEvent) []any {
	e := p.event
	return []any{part.Scope, part.Topic, p.key, p.seq, e.Key.Tenant, e.Key.Type, e.Key.ID,
		int64(e.Position.Generation), int64(e.Position.Retry), w.d.Time(p.due), false,
		decision.Storable(e.Origin.Topic), int64(e.Origin.Partition), e.Origin.Offset,
		w.d.originTime(e.Origin.Time), w.d.Time(w.now), notNil(e.Data)}
}

// Postpone implements [dedup.Deferrer].
func (s *Store) Postpone(ctx context.Context, part dedup.DeferredPartition,
	e dedup.Deferred) (moved bool, err error) {
	if err := e.Key.Validate(); err != nil {
		return false, s.wrong("postpone", err)
	}
	if e.Key.Scope != part.Scope {
		return false, nil
	}
	key := decision.QueueKey(e.Queue)
	err = s.ownTx(ctx, "postpone", nil, func(ctx context.Context, w *work) error {
		moved = false
		queues, err := w.lockQueues(ctx, part, [][]byte{key})
		q := queues[string(key)]
		if err != nil || q == nil {
			return err
		}
		var at *deferredPlace
		err = w.placesOf(ctx, part, []dedup.Key{e.Key}, func(p *deferredPlace) { at = p })
		if err != nil || at == nil || !at.postpones(key, &e) {
			return err
		}
		due := w.now.Add(waitFor(e.Wait))
		if err := w.postpone(ctx, part, at, &e, due); err != nil {
			return err
		}
		moved = true
		if at.seq != q.head {
			return nil
		}
		q.show(at.seq, due, e.Blocked, w.now)
		return w.changeQueues(ctx, part, q)
	})
	return err == nil && moved, err
}

func (w *work) postpone(ctx context.Context, part dedup.DeferredPartition, at *deferredPlace,
	e *dedup.Deferred, due time.Time) error {
	a := &arguments{d: w.d}
	text := "UPDATE deferred_events SET generation = " + a.add(int64(e.Position.Generation)) +
		", retry = " + a.add(int64(e.Position.Retry)) + ", blocked = " + a.add(e.Blocked) +
		", data = " + a.add(notNil(e.Data)) + ", due = " + a.add(w.d.Time(due)) +
		", updated_at = " + a.add(w.d.Time(w.now)) +
		" WHERE " + a.place(part, at)
	_, err := w.q.ExecContext(ctx, text, a.list...)
	return err
}

// Remove implements [dedup.Deferrer].
func (s *Store) Remove(ctx context.Context, part dedup.DeferredPartition, queue string,
	events ...dedup.Deferred) (empty bool, err error) {
	var keys []dedup.Key
	positions := make(map[dedup.Key][]dedup.Position)
	for i := range events {
		e := &events[i]
		if err := e.Key.Validate(); err != nil {
			return false, s.wrong("remove", err)
		}
		if e.Key.Scope != part.Scope {
			continue // no event of this partition
		}
		keys = append(keys, e.Key)
		positions[e.Key] = append(positions[e.Key], e.Position)
	}
	key := decision.QueueKey(queue)
	err = s.ownTx(ctx, "remove", nil, func(ctx context.Context, w *work) error {
		queues, err := w.lockQueues(ctx, part, [][]byte{key})
		q := queues[string(key)]
		if empty = q == nil; err != nil || empty {
			return err
		}
		var gone []*deferredPlace
		err = w.placesOf(ctx, part, keys, func(p *deferredPlace) {
			if slices.ContainsFunc(positions[p.key], func(at dedup.Position) bool {
				return p.removes(key, at)
			}) {
				gone = append(gone, p)
			}
		})
		if err != nil || len(gone) == 0 {
			return err
		}
		if err := w.removeEvents(ctx, part, gone); err != nil {
			return err
		}
		if !slices.ContainsFunc(gone, func(p *deferredPlace) bool { return p.seq == q.head }) {
			return nil
		}
		empty, err = w.nextHead(ctx, part, q)
		return err
	})
	return err == nil && empty, err
}

// removeEvents deletes events, one after the other. For a list of numbers, MySQL may read the whole
// table and wait for locked rows of other queues.
func (w *work) removeEvents(ctx context.Context, part dedup.DeferredPartition,
	gone []*deferredPlace) error {
	for _, p := range gone {
		a := &arguments{d: w.d}
		text := "DELETE FROM deferred_events WHERE " + a.place(part, p)
		if _, err := w.q.ExecContext(ctx, text, a.list...); err != nil {
			return err
		}
	}
	return nil
}

// nextHead makes the first event of a queue its head. A queue without events ends.
func (w *work) nextHead(ctx context.Context, part dedup.DeferredPartition, q *deferredQueue) (
	ended bool, err error) {
	a := &arguments{d: w.d}
	text := "SELECT seq, " + w.d.Micros("due") + ", blocked FROM deferred_events" + w.d.ByKey +
		" WHERE " + a.queue(part, q.key) + " ORDER BY seq LIMIT 1"
	var seq, due int64
	var blocked bool
	err = w.row(ctx, text, a.list, &seq, &due, &blocked)
	switch {
	case err == nil:
		q.show(seq, micros(due), blocked, w.now)
		return false, w.changeQueues(ctx, part, q)
	case !errors.Is(err, sql.ErrNoRows):
		return false, err
	}
	a = &arguments{d: w.d}
	text = "DELETE FROM deferred_queues WHERE " + a.queue(part, q.key)
	_, err = w.q.ExecContext(ctx, text, a.list...)
	return true, err
}

// Delay implements [dedup.Deferrer], in one transaction for any number of queues.
func (s *Store) Delay(ctx context.Context, part dedup.DeferredPartition, wait time.Duration,
	queues ...string) error {
	if len(queues) == 0 {
		return nil
	}
	locks := queueKeys(queues)
	return s.ownTx(ctx, "delay", nil, func(ctx context.Context, w *work) error {
		found, err := w.lockQueues(ctx, part, locks)
		if err != nil {
			return err
		}
		until := w.now.Add(waitFor(wait))
		var changed []*deferredQueue
		for _, key := range locks {
			q := found[string(key)]
			if q == nil || q.blocked || !q.due.Before(until) {
				continue
			}
			q.due = until
			changed = append(changed, q)
		}
		return w.changeQueues(ctx, part, changed...)
	})
}
