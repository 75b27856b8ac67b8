package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Defer implements [dedup.Deferrer], in tables deferred_queues and deferred_events: one round
// trip for any number of events. Defer waits some seconds at most for other calls on the same
// queues. Then the error matches [dedup.ErrUnavailable].
func (s *Store) Defer(ctx context.Context, part dedup.DeferredPartition,
	events []dedup.Deferred) error {
	for i := range events {
		err := events[i].Key.Validate()
		if err == nil && events[i].Key.Scope != part.Scope {
			err = fmt.Errorf("%w: %q is of another scope than its partition, %q", dedup.ErrKey,
				events[i].Key, part.Scope)
		}
		if err != nil {
			return fmt.Errorf("pgstore: defer: %w", err)
		}
	}
	if len(events) == 0 {
		return nil
	}
	rows := newDeferredRows(events)
	return s.db.ownTx(ctx, "defer", func(q *statements, b *pgx.Batch) {
		b.Queue(q.deferral.insert, append([]any{part.Scope, part.Topic, part.Partition},
			rows.args()...)...)
		b.Queue(q.deferral.settle, part.Scope, part.Topic, rows.queues)
	}, execs(2))
}

// deferredRows are the columns of events to defer, each once, and of their queues.
type deferredRows struct {
	queues, names [][]byte
	events        []int64

	queue, data             [][]byte
	back, generation, retry []int64
	wait, offset            []int64
	keys                    keyRows
	topic                   []string
	partition               []int32
	at                      []pgtype.Timestamptz
}

func newDeferredRows(events []dedup.Deferred) *deferredRows {
	r := &deferredRows{keys: newKeyRows(len(events))}
	known := make(map[dedup.Key]bool, len(events))
	lengths := make(map[string]int64)
	var places []int64
	var names []string
	for i := range events {
		e := &events[i]
		if known[e.Key] {
			lengths[e.Queue] += 0 // the queue moves to this partition all the same
			continue
		}
		known[e.Key] = true
		names, places = append(names, e.Queue), append(places, lengths[e.Queue])
		lengths[e.Queue]++
		r.add(e)
	}
	for i, name := range names {
		r.back = append(r.back, lengths[name]-places[i])
	}
	for name := range lengths {
		r.queues = append(r.queues, decision.QueueKey(name))
	}
	slices.SortFunc(r.queues, slices.Compare) // the order of the locks
	byKey := make(map[string]string, len(lengths))
	for name := range lengths {
		byKey[string(decision.QueueKey(name))] = name
	}
	for _, k := range r.queues {
		name := byKey[string(k)]
		r.events = append(r.events, lengths[name])
		if len(name) <= decision.ShortQueue {
			r.names = append(r.names, nil)
		} else {
			r.names = append(r.names, []byte(name))
		}
	}
	return r
}

func (r *deferredRows) add(e *dedup.Deferred) {
	r.keys.add(&e.Key)
	r.queue = append(r.queue, decision.QueueKey(e.Queue))
	r.generation, r.retry = append(r.generation, int64(e.Position.Generation)),
		append(r.retry, int64(e.Position.Retry))
	r.wait, r.data = append(r.wait, waitFor(e.Wait)), append(r.data, notNil(e.Data))
	r.topic, r.partition = append(r.topic, storable(e.Origin.Topic)),
		append(r.partition, e.Origin.Partition)
	r.offset, r.at = append(r.offset, e.Origin.Offset), append(r.at, timeOf(&e.Origin))
}

func (r *deferredRows) args() []any {
	return []any{r.queues, r.names, r.events, r.queue, r.back, r.keys.tenant, r.keys.typ, r.keys.id,
		r.generation, r.retry, r.wait, r.topic, r.partition, r.offset, r.at, r.data}
}

// waitFor is the wait of an event in microseconds, rounded up. A wait in the past counts as zero,
// so such an event does not go first.
func waitFor(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Microsecond) + 1
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Postpone implements [dedup.Deferrer].
func (s *Store) Postpone(ctx context.Context, part dedup.DeferredPartition,
	e dedup.Deferred) (moved bool, err error) {
	if err := e.Key.Validate(); err != nil {
		return false, fmt.Errorf("pgstore: postpone: %w", err)
	}
	if e.Key.Scope != part.Scope {
		return false, nil
	}
	queue := decision.QueueKey(e.Queue)
	var n int64
	err = s.db.ownTx(ctx, "postpone", func(q *statements, b *pgx.Batch) {
		b.Queue(q.deferral.lock, part.Scope, part.Topic, queue)
		b.Queue(q.deferral.postpone, part.Scope, part.Topic, queue, e.Key.Tenant, e.Key.Type,
			e.Key.ID, int64(e.Position.Generation), int64(e.Position.Retry), e.Blocked,
			waitFor(e.Wait), notNil(e.Data))
	}, func(results pgx.BatchResults) error {
		if err := execs(1)(results); err != nil {
			return err
		}
		return results.QueryRow().Scan(&n)
	})
	return err == nil && n > 0, err
}

// Remove implements [dedup.Deferrer].
func (s *Store) Remove(ctx context.Context, part dedup.DeferredPartition, queue string,
	events ...dedup.Deferred) (empty bool, err error) {
	keys := newKeyRows(len(events))
	var generation, retry []int64
	for i := range events {
		e := &events[i]
		if err := e.Key.Validate(); err != nil {
			return false, fmt.Errorf("pgstore: remove: %w", err)
		}
		if e.Key.Scope != part.Scope {
			continue // no event of this partition
		}
		keys.add(&e.Key)
		generation, retry = append(generation, int64(e.Position.Generation)),
			append(retry, int64(e.Position.Retry))
	}
	name := decision.QueueKey(queue)
	err = s.db.ownTx(ctx, "remove", func(q *statements, b *pgx.Batch) {
		b.Queue(q.deferral.lock, part.Scope, part.Topic, name)
		b.Queue(q.deferral.remove, part.Scope, part.Topic, name, keys.tenant, keys.typ, keys.id,
			generation, retry)
		b.Queue(q.deferral.settle, part.Scope, part.Topic, [][]byte{name})
		b.Queue(q.deferral.ended, part.Scope, part.Topic, name)
	}, func(results pgx.BatchResults) error {
		if err := execs(3)(results); err != nil {
			return err
		}
		return results.QueryRow().Scan(&empty)
	})
	return err == nil && empty, err
}

// deferredRow holds a row of deferred_event.sql. All fields are null if there is no event.
type deferredRow struct {
	partition         int32
	name, data        []byte
	tenant, typ, id   pgtype.Text
	generation, retry pgtype.Int8
	wait, offset      pgtype.Int8
	blocked           pgtype.Bool
	topic             pgtype.Text
	originPartition   pgtype.Int4
	at                pgtype.Timestamptz
}

func (r *deferredRow) into() []any {
	return []any{&r.partition, &r.name, &r.tenant, &r.typ, &r.id, &r.generation, &r.retry, &r.wait,
		&r.blocked, &r.topic, &r.originPartition, &r.offset, &r.at, &r.data}
}

func (r *deferredRow) event(scope string) dedup.Deferred {
	return dedup.Deferred{
		Key: dedup.Key{Tenant: r.tenant.String, Scope: scope, Type: r.typ.String,
			ID: r.id.String},
		Queue: string(r.name),
		Position: dedup.Position{Generation: uint32(r.generation.Int64),
			Retry: uint32(r.retry.Int64)},
		Wait:    time.Duration(r.wait.Int64) * time.Microsecond,
		Blocked: r.blocked.Bool,
		Origin:  readOrigin(r.topic.String, r.originPartition, r.offset, r.at),
		Data:    r.data,
	}
}

// Due implements [dedup.Deferrer]. Due takes no lock.
func (s *Store) Due(ctx context.Context, part dedup.DeferredPartition,
	limit int) (heads []dedup.Deferred, next time.Duration, err error) {
	limit = max(0, limit)
	err = s.db.ownTx(ctx, "due", func(q *statements, b *pgx.Batch) {
		heads, next = nil, -1
		b.Queue(q.deferral.due, part.Scope, part.Topic, part.Partition, int64(limit)+1)
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r deferredRow
			var wait int64
			if err := rows.Scan(append([]any{&wait}, r.into()...)...); err != nil {
				return err
			}
			if wait > 0 || len(heads) == limit {
				next = time.Duration(max(0, wait)) * time.Microsecond
				break
			}
			if !r.id.Valid {
				return errNoAnswer
			}
			heads = append(heads, r.event(part.Scope))
		}
		rows.Close()
		return rows.Err()
	})
	if err != nil {
		return nil, 0, err
	}
	return heads, next, nil
}

// Delay implements [dedup.Deferrer], in one round trip for any number of queues.
func (s *Store) Delay(ctx context.Context, part dedup.DeferredPartition, wait time.Duration,
	queues ...string) error {
	if len(queues) == 0 {
		return nil
	}
	keys := make([][]byte, len(queues))
	for i, name := range queues {
		keys[i] = decision.QueueKey(name)
	}
	return s.db.ownTx(ctx, "delay", func(q *statements, b *pgx.Batch) {
		b.Queue(q.deferral.delay, part.Scope, part.Topic, keys, waitFor(wait))
	}, execs(1))
}

// First implements [dedup.Deferrer].
func (s *Store) First(ctx context.Context, part dedup.DeferredPartition, queue string,
	limit int) (first []dedup.Deferred, err error) {
	err = s.db.ownTx(ctx, "first deferred", func(q *statements, b *pgx.Batch) {
		first = nil
		b.Queue(q.deferral.first, part.Scope, part.Topic, decision.QueueKey(queue), int64(max(0, limit)))
	}, func(results pgx.BatchResults) (err error) {
		first, err = readDeferred(results, part.Scope)
		return err
	})
	if err != nil {
		return nil, err
	}
	return first, nil
}

// readDeferred reads rows of deferred_event.sql.
func readDeferred(results pgx.BatchResults, scope string) (events []dedup.Deferred, err error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r deferredRow
		if err := rows.Scan(r.into()...); err != nil {
			return nil, err
		}
		events = append(events, r.event(scope))
	}
	return events, rows.Err()
}

// DeferredOf implements [dedup.Deferrer]: one look-up in an index for each key.
func (s *Store) DeferredOf(ctx context.Context, scope, topic string,
	keys ...dedup.Key) (found []dedup.Deferred, err error) {
	rows := newKeyRows(len(keys))
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, fmt.Errorf("pgstore: deferred of: %w", err)
		}
		if keys[i].Scope == scope {
			rows.add(&keys[i])
		}
	}
	if len(rows.id) == 0 {
		return nil, nil
	}
	err = s.db.ownTx(ctx, "deferred of", func(q *statements, b *pgx.Batch) {
		found = nil
		b.Queue(q.deferral.those, scope, topic, rows.tenant, rows.typ, rows.id)
	}, func(results pgx.BatchResults) (err error) {
		found, err = readDeferred(results, scope)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// FindDeferred implements [dedup.Deferrer].
func (s *Store) FindDeferred(ctx context.Context, scope, topic string,
	key dedup.Key) (part dedup.DeferredPartition, e dedup.Deferred, ok bool, err error) {
	if err := key.Validate(); err != nil {
		return part, e, false, fmt.Errorf("pgstore: find deferred: %w", err)
	}
	if key.Scope != scope {
		return part, e, false, nil
	}
	partition, e, ok, err := s.deferred(ctx, scope, func(q *statements, b *pgx.Batch) {
		b.Queue(q.deferral.find, scope, topic, key.Tenant, key.Type, key.ID)
	})
	if !ok {
		return part, e, false, err
	}
	return dedup.DeferredPartition{Scope: scope, Topic: topic, Partition: partition}, e, true, nil
}

// deferred reads at most one event.
func (s *Store) deferred(ctx context.Context, scope string,
	queue func(*statements, *pgx.Batch)) (partition int32, e dedup.Deferred, ok bool, err error) {
	var r deferredRow
	err = s.db.ownTx(ctx, "deferred", queue, func(results pgx.BatchResults) error {
		r, ok = deferredRow{}, false
		err := results.QueryRow().Scan(r.into()...)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		ok = err == nil
		return err
	})
	if err != nil || !ok {
		return 0, dedup.Deferred{}, false, err
	}
	return r.partition, r.event(scope), true, nil
}

// Queues implements [dedup.Deferrer]. Names longer than 512 bytes are sorted by their first 512
// bytes, then by a hash.
func (s *Store) Queues(ctx context.Context, part dedup.DeferredPartition, after string,
	limit int) (queues []dedup.Queue, err error) {
	err = s.db.ownTx(ctx, "queues", func(q *statements, b *pgx.Batch) {
		queues = nil
		b.Queue(q.deferral.queues, part.Scope, part.Topic, part.Partition, decision.QueueKey(after),
			after == "", int64(max(0, limit)))
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		var name []byte
		var length, wait int64
		var blocked bool
		_, err = pgx.ForEachRow(rows, []any{&name, &length, &wait, &blocked}, func() error {
			queues = append(queues, dedup.Queue{Name: string(name), Length: int(length),
				Wait: time.Duration(wait) * time.Microsecond, Blocked: blocked})
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return queues, nil
}
