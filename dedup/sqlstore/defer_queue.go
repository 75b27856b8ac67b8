package sqlstore

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// deferredQueue is a row of deferred_queues. To change a queue or its events, a transaction first
// locks the row. The row exists if and only if the queue has an event.
type deferredQueue struct {
	key       []byte
	name      any // of a new queue with a long name, else nil
	partition int32
	next      int64 // number of the next event
	head      int64 // number of the first event
	due       time.Time
	blocked   bool
}

func newDeferredQueue(name string) *deferredQueue {
	q := &deferredQueue{key: decision.QueueKey(name), next: 1}
	if len(name) > decision.ShortQueue {
		q.name = []byte(name)
	}
	return q
}

// show makes the queue due with its first event. A new head takes its turn behind the heads that
// are due already.
func (q *deferredQueue) show(head int64, due time.Time, blocked bool, now time.Time) {
	q.head, q.due, q.blocked = head, later(due, now), blocked
}

// placedEvent is an event with its place in a queue.
type placedEvent struct {
	event *dedup.Deferred
	key   []byte // of the queue
	seq   int64
	due   time.Time
}

// placeEvents appends events to their queues, but those with a known key. queues are the existing
// ones, by their keys. All queues with an event move to the partition. The new queues ascend by
// their keys, and the events by theirs: this is the order of the locks.
func placeEvents(queues map[string]*deferredQueue, known map[dedup.Key]bool, partition int32,
	events []dedup.Deferred, now time.Time) (placed []placedEvent, added []*deferredQueue) {
	placed = make([]placedEvent, 0, len(events))
	seen := make(map[dedup.Key]bool, len(events))
	fresh := make(map[string]*deferredQueue)
	for i := range events {
		e := &events[i]
		key := string(decision.QueueKey(e.Queue))
		q := cmp.Or(queues[key], fresh[key])
		if q != nil {
			q.partition = partition
		}
		if known[e.Key] || seen[e.Key] {
			continue
		}
		seen[e.Key] = true
		due := now.Add(waitFor(e.Wait))
		if q == nil {
			q = newDeferredQueue(e.Queue)
			q.partition = partition
			q.show(q.next, due, false, now)
			fresh[key] = q
			added = append(added, q)
		}
		placed = append(placed, placedEvent{event: e, key: q.key, seq: q.next, due: due})
		q.next++
	}
	slices.SortFunc(added, func(a, b *deferredQueue) int { return bytes.Compare(a.key, b.key) })
	slices.SortFunc(placed, func(a, b placedEvent) int { return a.event.Key.Compare(b.event.Key) })
	return placed, added
}

// waitFor is the wait of an event in whole microseconds, rounded up. A wait in the past counts as
// zero, so such an event does not go first.
func waitFor(d time.Duration) time.Duration {
	const unit = int64(time.Microsecond)
	if d <= 0 {
		return 0
	}
	return time.Duration(min((int64(d)-1)/unit+1, math.MaxInt64/unit) * unit)
}

// queueKeys returns the keys of queues in the order of their locks, each once.
func queueKeys(names []string) [][]byte {
	keys := make([][]byte, len(names))
	for i, name := range names {
		keys[i] = decision.QueueKey(name)
	}
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal)
}

// lockQueues locks queues, which ascend by their keys, and reads them and then the clock.
func (w *work) lockQueues(ctx context.Context, part dedup.DeferredPartition,
	keys [][]byte) (map[string]*deferredQueue, error) {
	found := make(map[string]*deferredQueue, len(keys))
	for some := range slices.Chunk(keys, rowsPerStatement) {
		from, args := w.queuesByKey(part, some)
		text := "SELECT queue, " + w.d.name("partition") + ", next_seq, head_seq, " +
			w.d.Micros("due") + ", blocked FROM " + from
		err := each(ctx, w.q, text, args, func(rows *sql.Rows) error {
			q := &deferredQueue{}
			var due int64
			err := rows.Scan(&q.key, &q.partition, &q.next, &q.head, &due, &q.blocked)
			q.key, q.due = notNil(q.key), micros(due)
			found[string(q.key)] = q
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, w.readClock(ctx)
}

// queuesByKey returns the FROM clause that locks queues in the order of their keys.
func (w *work) queuesByKey(part dedup.DeferredPartition, keys [][]byte) (from string, args []any) {
	a := &arguments{d: w.d}
	where := "scope = " + a.add(part.Scope) + " AND topic = " + a.add(part.Topic)
	if !w.d.Lateral {
		return "deferred_queues" + w.d.ByKey + " WHERE " + where + " AND queue IN " + in(a, keys) +
			" ORDER BY queue" + w.d.Lock, a.list
	}
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = "(" + a.add(key) + "::bytea)"
	}
	return "(VALUES " + strings.Join(values, ", ") + ") v (key) CROSS JOIN LATERAL " +
		"(SELECT * FROM deferred_queues WHERE " + where + " AND queue = v.key LIMIT 1" +
		w.d.Lock + ") k", a.list
}

// addQueues inserts queues, which ascend by their keys. If another transaction has inserted one
// meanwhile, the error is errAgain.
func (w *work) addQueues(ctx context.Context, part dedup.DeferredPartition,
	queues []*deferredQueue) error {
	return deferredQueues(w.d).add(ctx, w.q, w.d, w.queueRows(part, queues))
}

// changeQueues writes queues that are locked.
func (w *work) changeQueues(ctx context.Context, part dedup.DeferredPartition,
	queues ...*deferredQueue) error {
	to := deferredQueues(w.d)
	tail := w.d.Replace(to.columns[:to.key], to.columns[to.key:to.key+queueState])
	for rows := range slices.Chunk(w.queueRows(part, queues), rowsPerStatement) {
		if _, err := to.insert(ctx, w.q, w.d, rows, tail); err != nil {
			return err
		}
	}
	return nil
}

// queueState is the number of columns behind the key that change.
const queueState = 5

// queueRows returns rows in the order of the columns of deferredQueues.
func (w *work) queueRows(part dedup.DeferredPartition, queues []*deferredQueue) [][]any {
	rows := make([][]any, len(queues))
	for i, q := range queues {
		rows[i] = []any{part.Scope, part.Topic, q.key, int64(q.partition), q.next, q.head,
			w.d.Time(q.due), q.blocked, q.name, w.d.Time(w.now)}
	}
	return rows
}

// notNil returns b as a value that is not null in the database. Drivers read an empty value as nil.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
