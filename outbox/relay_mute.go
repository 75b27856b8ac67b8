package outbox

import (
	"maps"
	"time"
)

const (
	// maxMutes bounds what is remembered of failures. What is more is tried again in every round, with a pause before it.
	maxMutes = 1000
	// muteMemory is how long after its time a failure is remembered, if the row has not been met again: a person may have deleted it. It is
	// long, as many that fail slowly are met again late.
	muteMemory = 10 * time.Minute

	minBlameBackoff, maxBlameBackoff = time.Second, 30 * time.Second
)

// muteID is an aggregate, or a row without a key, which is one for itself.
type muteID struct {
	Aggregate
	row int64 // 0 for rows with a key
}

func muteIDOf(row *Row) muteID {
	id := muteID{Aggregate: Aggregate{Topic: row.Entry.Topic, Key: row.Entry.Key}}
	if row.Entry.Key == "" {
		id.row = row.Seq
	}
	return id
}

// mute is an aggregate that failed, and is left alone for a while.
type mute struct {
	shard    int
	until    time.Time
	failures int
	broker   bool  // the last one was the broker's
	row      int64 // that failed and was to blame, and how often
	blamed   int
}

// mutes is what a relay remembers of failures. Another relay that takes over begins at none.
type mutes map[muteID]*mute

// failed mutes the aggregate of a row. blamed is how often that row was to blame. ok says that there was room to remember it.
func (m mutes) failed(row *Row, broker bool) (blamed int, ok bool) {
	id, now := muteIDOf(row), time.Now()
	e := m[id]
	if e == nil {
		if len(m) >= maxMutes && !m.clean(now) {
			return 0, false
		}
		e = &mute{shard: row.Shard}
		m[id] = e
	}
	if e.broker != broker {
		e.failures = 0
	}
	least, most := minBlameBackoff, maxBlameBackoff
	if broker {
		least, most = minBrokerBackoff, maxBrokerBackoff
	}
	e.until = now.Add(grow(least, most, e.failures))
	e.broker = broker
	e.failures++
	if !broker {
		if e.row != row.Seq {
			e.row, e.blamed = row.Seq, 0
		}
		e.blamed++
	}
	return e.blamed, true
}

// settled forgets the failures of the aggregate of a row that was sent or parked.
func (m mutes) settled(row *Row) { delete(m, muteIDOf(row)) }

// clean forgets what has not been met for long, and reports whether there is room.
func (m mutes) clean(now time.Time) bool {
	maps.DeleteFunc(m, func(_ muteID, e *mute) bool { return now.Sub(e.until) > muteMemory })
	return len(m) < maxMutes
}

// keep forgets what is another relay's to publish.
func (m mutes) keep(held map[int]Lease) {
	maps.DeleteFunc(m, func(_ muteID, e *mute) bool { _, ok := held[e.shard]; return !ok })
}

// rests reports whether e is to be left alone now. When only what is fresh is wanted, it is also if its time has come.
func (e *mute) rests(now time.Time, fresh bool) bool {
	return e != nil && (fresh || now.Before(e.until))
}

// due reports whether there is something whose time has come.
func (m mutes) due(now time.Time) bool {
	for _, e := range m {
		if !e.rests(now, false) {
			return true
		}
	}
	return false
}

// skip is what is not to be fetched now.
func (m mutes) skip(now time.Time, fresh bool) (aggregates []Aggregate, rows []int64) {
	for id, e := range m {
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

// next is when the next one is to be tried again.
func (m mutes) next(now time.Time) time.Duration {
	next := forever
	for _, e := range m {
		if d := e.until.Sub(now); d > 0 {
			next = min(next, d)
		}
	}
	return next
}

// brokers reports whether there is one left that failed because of the broker.
func (m mutes) brokers() bool {
	for _, e := range m {
		if e.broker {
			return true
		}
	}
	return false
}
