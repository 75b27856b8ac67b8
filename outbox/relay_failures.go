package outbox

import (
	"maps"
	"time"
)

const (
	// maxFailures bounds the aggregates that are remembered. Any further aggregate is tried again
	// in every round, after a pause.
	maxFailures = 1000
	// failureMemory is how long a failure is kept after its backoff if the row is not fetched
	// again: a person may have deleted the row. With many slow failures, a row may be fetched again
	// late.
	failureMemory = 10 * time.Minute
)

// aggregateID names an aggregate. A row without a key is an aggregate of its own.
type aggregateID struct {
	Aggregate
	row int64 // 0 for rows with a key
}

func aggregateOf(row *Row) aggregateID {
	id := aggregateID{Aggregate: Aggregate{Topic: row.Entry.Topic, Key: row.Entry.Key}}
	if row.Entry.Key == "" {
		id.row = row.Seq
	}
	return id
}

// failure is an aggregate with a failed row. The aggregate is left out until its backoff is over.
type failure struct {
	shard  int
	until  time.Time
	count  int
	broker bool  // the last failure was the broker's
	row    int64 // the row that failed and was to blame
	blamed int   // how often row was to blame
}

// failures are the aggregates that failed, by aggregate. A relay that takes a shard over starts
// without any.
type failures map[aggregateID]*failure

// add starts the backoff of the aggregate of row. If the row was to blame, broker is false. The
// result blamed counts how often the row was to blame. The result ok is false if the aggregate
// could not be remembered.
func (f failures) add(row *Row, broker bool) (blamed int, ok bool) {
	id, now := aggregateOf(row), time.Now()
	e := f[id]
	if e == nil {
		if len(f) >= maxFailures && !f.prune(now) {
			return 0, false
		}
		e = &failure{shard: row.Shard}
		f[id] = e
	}
	if e.broker != broker {
		e.count = 0
	}
	least, most := minRowBackoff, maxRowBackoff
	if broker {
		least, most = minBrokerBackoff, maxBrokerBackoff
	}
	e.until = now.Add(grow(least, most, e.count))
	e.broker = broker
	e.count++
	if !broker {
		if e.row != row.Seq {
			e.row, e.blamed = row.Seq, 0
		}
		e.blamed++
	}
	return e.blamed, true
}

// settled forgets the aggregate of a row that was sent or parked.
func (f failures) settled(row *Row) { delete(f, aggregateOf(row)) }

// prune forgets aggregates after failureMemory, and reports whether there is room for another.
func (f failures) prune(now time.Time) bool {
	maps.DeleteFunc(f, func(_ aggregateID, e *failure) bool {
		return now.Sub(e.until) > failureMemory
	})
	return len(f) < maxFailures
}

// keep forgets the aggregates of shards that the relay does not hold.
func (f failures) keep(held map[int]Lease) {
	maps.DeleteFunc(f, func(_ aggregateID, e *failure) bool { _, ok := held[e.shard]; return !ok })
}

// rests reports whether e is left out now. With fresh, every failure is left out.
func (e *failure) rests(now time.Time, fresh bool) bool {
	return e != nil && (fresh || now.Before(e.until))
}

// due reports whether the backoff of an aggregate is over.
func (f failures) due(now time.Time) bool {
	for _, e := range f {
		if !e.rests(now, false) {
			return true
		}
	}
	return false
}

// skip returns the aggregates, and the rows without a key, that are not to be fetched now.
func (f failures) skip(now time.Time, fresh bool) (aggregates []Aggregate, rows []int64) {
	for id, e := range f {
		switch {
		case !e.rests(now, fresh):
		case id.row != 0:
			rows = append(rows, id.row)
		default:
			aggregates = append(aggregates, id.Aggregate)
		}
	}
	return aggregates, rows
}

// next returns the time until the first backoff is over.
func (f failures) next(now time.Time) time.Duration {
	next := forever
	for _, e := range f {
		if d := e.until.Sub(now); d > 0 {
			next = min(next, d)
		}
	}
	return next
}

// ofBroker reports whether the last failure of an aggregate was the broker's.
func (f failures) ofBroker() bool {
	for _, e := range f {
		if e.broker {
			return true
		}
	}
	return false
}
