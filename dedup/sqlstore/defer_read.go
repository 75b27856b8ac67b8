package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// queue is the condition for the row of a queue, or for the events of the queue.
func (a *arguments) queue(part dedup.DeferredPartition, key []byte) string {
	return "scope = " + a.add(part.Scope) + " AND topic = " + a.add(part.Topic) +
		" AND queue = " + a.add(key)
}

// place is the condition for one event. Postgres is given all columns of both unique keys. With the
// statistics of a small table, a part of one key looks as good as the whole other key.
func (a *arguments) place(part dedup.DeferredPartition, p *deferredPlace) string {
	where := a.queue(part, notNil(p.queue)) + " AND seq = " + a.add(p.seq)
	if !a.d.Lateral {
		return where
	}
	return where + " AND tenant = " + a.add(p.key.Tenant) + " AND event_type = " +
		a.add(p.key.Type) + " AND event_id = " + a.add(p.key.ID)
}

// deferredPlace is the place of a deferred event.
type deferredPlace struct {
	key      dedup.Key
	queue    []byte
	seq      int64
	position dedup.Position
}

// postpones reports whether the event moves to the place and state of e, in the queue of this key.
func (p *deferredPlace) postpones(queue []byte, e *dedup.Deferred) bool {
	return bytes.Equal(p.queue, queue) &&
		(p.position.Before(e.Position) || e.Blocked && p.position == e.Position)
}

// removes reports whether a removal at a position removes the event. An event at a later position,
// or of another generation, stays.
func (p *deferredPlace) removes(queue []byte, at dedup.Position) bool {
	return bytes.Equal(p.queue, queue) && p.position.Generation == at.Generation &&
		p.position.Retry <= at.Retry
}

// deferredEvents returns a derived table p with the events of a topic.
func (w *work) deferredEvents(topic string, keys []dedup.Key) (from string, args []any) {
	if !w.d.Lateral {
		from, args = w.d.chosen(keys)
		args = append(args, topic)
		return "(SELECT * FROM deferred_events WHERE " + from + " AND topic = " +
			w.d.Param(len(args)) + ") p", args
	}
	from, args = w.d.keyByKey(keys)
	args = append(args, topic)
	return "(SELECT p.* FROM " + from +
		" CROSS JOIN LATERAL (SELECT * FROM deferred_events WHERE " + ofKey +
		" AND topic = " + w.d.Param(len(args)) + " LIMIT 1) p) p", args
}

// placesOf reads the places of events of a topic, without a lock.
func (w *work) placesOf(ctx context.Context, part dedup.DeferredPartition, keys []dedup.Key,
	yield func(*deferredPlace)) error {
	for some := range slices.Chunk(ascending(keys), rowsPerStatement) {
		from, args := w.deferredEvents(part.Topic, some)
		text := "SELECT tenant, event_type, event_id, queue, seq, generation, retry FROM " + from
		err := each(ctx, w.q, text, args, func(rows *sql.Rows) error {
			p := &deferredPlace{key: dedup.Key{Scope: part.Scope}}
			err := rows.Scan(&p.key.Tenant, &p.key.Type, &p.key.ID, &p.queue, &p.seq,
				&p.position.Generation, &p.position.Retry)
			if err == nil {
				yield(p)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ascending returns keys in order, each once.
func ascending(keys []dedup.Key) []dedup.Key {
	all := slices.Clone(keys)
	slices.SortFunc(all, dedup.Key.Compare)
	return slices.Compact(all)
}

// eventColumns returns the columns of an event with alias p, for deferredRow.
func eventColumns(d *Dialect) string {
	return "p.tenant, p.event_type, p.event_id, p.generation, p.retry, " + d.Micros("p.due") +
		", p.blocked, p.origin_topic, p.origin_partition, p.origin_offset, " +
		d.Micros("p.origin_time") + ", p.data"
}

// deferredRow holds eventColumns. All fields are null if there is no event.
type deferredRow struct {
	tenant, typ, id        sql.NullString
	generation, retry, due sql.NullInt64
	blocked                sql.NullBool
	topic                  sql.NullString
	partition, offset, at  sql.NullInt64
	data                   []byte
}

func (r *deferredRow) into() []any {
	return []any{&r.tenant, &r.typ, &r.id, &r.generation, &r.retry, &r.due, &r.blocked, &r.topic,
		&r.partition, &r.offset, &r.at, &r.data}
}

func (r *deferredRow) event(scope, queue string, now time.Time) dedup.Deferred {
	e := dedup.Deferred{
		Key: dedup.Key{Tenant: r.tenant.String, Scope: scope, Type: r.typ.String,
			ID: r.id.String},
		Queue: queue,
		Position: dedup.Position{Generation: uint32(r.generation.Int64),
			Retry: uint32(r.retry.Int64)},
		Wait:    micros(r.due.Int64).Sub(now),
		Blocked: r.blocked.Bool,
		Origin: dedup.Origin{Topic: r.topic.String, Partition: int32(r.partition.Int64),
			Offset: r.offset.Int64},
		Data: r.data,
	}
	if r.at.Valid {
		e.Origin.Time = micros(r.at.Int64)
	}
	return e
}

// Due implements [dedup.Deferrer]. Due takes no lock.
func (s *Store) Due(ctx context.Context, part dedup.DeferredPartition,
	limit int) (heads []dedup.Deferred, next time.Duration, err error) {
	limit = min(max(0, limit), math.MaxInt32)
	err = s.reading(ctx, "due", nil, func(ctx context.Context, w *work) error {
		heads, next = nil, -1
		if err := w.readClock(ctx); err != nil {
			return err
		}
		text, args := w.dueQuery(part, limit+1)
		return each(ctx, w.q, text, args, func(rows *sql.Rows) error {
			var r deferredRow
			var due int64
			var name []byte
			if err := rows.Scan(append([]any{&due, &name}, r.into()...)...); err != nil {
				return err
			}
			switch wait := micros(due).Sub(w.now); {
			case next >= 0: // known already: the rows ascend
			case wait > 0 || len(heads) == limit:
				next = max(0, wait)
			case !r.id.Valid:
				return errAgain
			default:
				heads = append(heads, r.event(part.Scope, string(name), w.now))
			}
			return nil
		})
	})
	if err != nil {
		return nil, 0, err
	}
	return heads, next, nil
}

// dueQuery selects the first queues of a partition that are not blocked, in the order in which
// their heads become due, with the heads that are due. The heads are found by the primary key. The
// index of the queues has the blocked queues apart.
func (w *work) dueQuery(part dedup.DeferredPartition, limit int) (text string, args []any) {
	a := &arguments{d: w.d}
	index := ""
	if w.d.Index != nil {
		index = w.d.Index("deferred_queues_due")
	}
	text = "SELECT " + w.d.Micros("k.due") + ", coalesce(k.name, k.queue), " + eventColumns(w.d) +
		" FROM (SELECT * FROM deferred_queues" + index + " WHERE scope = " + a.add(part.Scope) +
		" AND topic = " + a.add(part.Topic) + " AND " + w.d.name("partition") + " = " +
		a.add(int64(part.Partition)) + " AND blocked = false ORDER BY due LIMIT " +
		a.add(int64(limit)) + ") k LEFT JOIN " + headJoin(w.d) + " AND k.due <= " +
		a.add(w.d.Time(w.now)) + " ORDER BY k.due"
	return text, a.list
}

// ofQueue is the condition for the events p of a queue k.
const ofQueue = "p.scope = k.scope AND p.topic = k.topic AND p.queue = k.queue"

// headJoin is the table p of the heads of queues k, with its condition. Without statistics of a
// table that has grown, Postgres takes the two indexes of the events for equally good. Only the
// order of the rows makes the primary key the better choice.
func headJoin(d *Dialect) string {
	if !d.Lateral {
		return "deferred_events p ON " + ofQueue + " AND p.seq = k.head_seq"
	}
	return "LATERAL (SELECT * FROM deferred_events p WHERE " + ofQueue +
		" AND p.seq >= k.head_seq ORDER BY p.seq LIMIT 1) p ON p.seq = k.head_seq"
}

// lengthOf is an expression for the number of events of a queue k, see headJoin.
func lengthOf(d *Dialect) string {
	if !d.Lateral {
		return "(SELECT count(*) FROM deferred_events p WHERE " + ofQueue + ")"
	}
	return "(SELECT count(*) FROM (SELECT p.seq FROM deferred_events p WHERE " + ofQueue +
		" ORDER BY p.seq) p)"
}

// First implements [dedup.Deferrer].
func (s *Store) First(ctx context.Context, part dedup.DeferredPartition, queue string,
	limit int) (first []dedup.Deferred, err error) {
	err = s.reading(ctx, "first deferred", nil, func(ctx context.Context, w *work) error {
		first = nil
		if err := w.readClock(ctx); err != nil {
			return err
		}
		a := &arguments{d: w.d}
		text := "SELECT " + eventColumns(w.d) + " FROM deferred_events p" + w.d.ByKey + " WHERE " +
			a.queue(part, decision.QueueKey(queue)) + " ORDER BY seq LIMIT " +
			a.add(int64(max(0, limit)))
		return each(ctx, w.q, text, a.list, func(rows *sql.Rows) error {
			var r deferredRow
			err := rows.Scan(r.into()...)
			first = append(first, r.event(part.Scope, queue, w.now))
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return first, nil
}

// Queues implements [dedup.Deferrer]. Names longer than 512 bytes are sorted by their first 512
// bytes, then by a hash.
func (s *Store) Queues(ctx context.Context, part dedup.DeferredPartition, after string,
	limit int) (queues []dedup.Queue, err error) {
	err = s.reading(ctx, "queues", nil, func(ctx context.Context, w *work) error {
		queues = nil
		if err := w.readClock(ctx); err != nil {
			return err
		}
		text, args := w.queuesQuery(part, after, limit)
		return each(ctx, w.q, text, args, func(rows *sql.Rows) error {
			var q dedup.Queue
			var name []byte
			var due int64
			err := rows.Scan(&name, &q.Length, &due, &q.Blocked)
			if q.Name = string(name); !q.Blocked {
				q.Wait = micros(due).Sub(w.now)
			}
			queues = append(queues, q)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return queues, nil
}

// queuesQuery selects the queues of a partition in the order of their names.
func (w *work) queuesQuery(part dedup.DeferredPartition, after string, limit int) (
	text string, args []any) {
	a := &arguments{d: w.d}
	conditions := []string{"k.scope = " + a.add(part.Scope), "k.topic = " + a.add(part.Topic),
		"k." + w.d.name("partition") + " = " + a.add(int64(part.Partition))}
	if after != "" {
		conditions = append(conditions, "k.queue > "+a.add(decision.QueueKey(after)))
	}
	index := ""
	if w.d.Index != nil {
		index = w.d.Index("deferred_queues_partition")
	}
	return "SELECT coalesce(k.name, k.queue), " + lengthOf(w.d) + ", " +
		w.d.Micros("k.due") + ", k.blocked FROM deferred_queues k" + index + " WHERE " +
		strings.Join(conditions, " AND ") + " ORDER BY k.queue LIMIT " +
		a.add(int64(max(0, limit))), a.list
}

// DeferredOf implements [dedup.Deferrer]: one look-up in an index for each key.
func (s *Store) DeferredOf(ctx context.Context, scope, topic string,
	keys ...dedup.Key) (found []dedup.Deferred, err error) {
	var mine []dedup.Key
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, s.wrong("deferred of", err)
		}
		if keys[i].Scope == scope {
			mine = append(mine, keys[i])
		}
	}
	err = s.deferredOf(ctx, "deferred of", scope, topic, mine, func(_ int32, e dedup.Deferred) {
		found = append(found, e)
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
		return part, e, false, s.wrong("find deferred", err)
	}
	if key.Scope != scope {
		return part, e, false, nil
	}
	err = s.deferredOf(ctx, "find deferred", scope, topic, []dedup.Key{key},
		func(partition int32, found dedup.Deferred) {
			part = dedup.DeferredPartition{Scope: scope, Topic: topic, Partition: partition}
			e, ok = found, true
		})
	if err != nil {
		return dedup.DeferredPartition{}, dedup.Deferred{}, false, err
	}
	return part, e, ok, nil
}

// deferredOf reads events of a topic in any queue, with the partition of the queue.
func (s *Store) deferredOf(ctx context.Context, verb, scope, topic string, keys []dedup.Key,
	yield func(int32, dedup.Deferred)) error {
	if len(keys) == 0 {
		return nil
	}
	return s.reading(ctx, verb, nil, func(ctx context.Context, w *work) error {
		if err := w.readClock(ctx); err != nil {
			return err
		}
		for some := range slices.Chunk(ascending(keys), rowsPerStatement) {
			from, args := w.deferredEvents(topic, some)
			text := "SELECT k." + w.d.name("partition") + ", coalesce(k.name, k.queue), " +
				eventColumns(w.d) + " FROM " + from + " JOIN deferred_queues k" +
				" ON k.scope = p.scope AND k.topic = p.topic AND k.queue = p.queue"
			err := each(ctx, w.q, text, args, func(rows *sql.Rows) error {
				var r deferredRow
				var partition int32
				var name []byte
				err := rows.Scan(append([]any{&partition, &name}, r.into()...)...)
				if err == nil {
					yield(partition, r.event(scope, string(name), w.now))
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}
