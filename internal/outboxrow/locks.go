package outboxrow

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/idem-go/idem/outbox"
)

// maxLocks is how many aggregates a transaction in Postgres locks one by one. A transaction with
// more locks the whole outbox. By default a server has room for 64 locks per connection.
const maxLocks = 500

// Locks are the advisory locks of a transaction in Postgres. Every transaction first locks the
// outbox, normally shared, and then its aggregates by ascending numbers. All packages that add to
// one table must lock alike, in every release, because releases run side by side.
type Locks struct {
	// Whole is the lock of the outbox.
	Whole int64
	// Each are the locks of the aggregates, in their order. Empty: no entry has a key, or Whole
	// must be locked exclusively.
	Each []int64
	// None is set if no entry has a key.
	None bool
}

// LocksOf returns the locks for entries in the outbox of a schema.
func LocksOf(schema string, entries []outbox.Entry) Locks {
	l := Locks{Whole: WholeLock(schema)}
	for i := range entries {
		if e := &entries[i]; e.Key != "" {
			l.Each = append(l.Each, LockOf(schema, e))
		}
	}
	l.None = len(l.Each) == 0
	slices.Sort(l.Each)
	if l.Each = slices.Compact(l.Each); len(l.Each) > maxLocks {
		l.Each = nil
	}
	return l
}

// WholeLock returns the number of the lock of an outbox. No entry has an empty topic.
func WholeLock(schema string) int64 { return lockNumber(schema, "", "") }

// LockOf returns the number of the lock of the aggregate of an entry.
func LockOf(schema string, e *outbox.Entry) int64 { return lockNumber(schema, e.Topic, e.Key) }

// lockNumber returns the number of an advisory lock. The number must be the same in every release.
func lockNumber(schema, topic, key string) int64 {
	text := append(make([]byte, 0, hashed), "idem.outbox\x00"...)
	text = append(append(text, schema...), 0)
	text = append(append(text, topic...), 0)
	sum := sha256.Sum256(append(text, key...))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
