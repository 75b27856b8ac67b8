package ops

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// failure is the last failure of an event in this process.
type failure struct {
	Key     dedup.Key
	Origin  dedup.Origin
	At      time.Time
	Attempt int
	Delay   time.Duration // until the next attempt
	Topic   string        // where that will come from; empty: in the place
	Dead    bool
	Class   idem.Class
	Error   string
}

// failureTable keeps some of the last failures of events. Each shard forgets its oldest failure.
type failureTable struct {
	shards [failureShards]failureShard
	window atomic.Int64 // of which noted is the number
	noted  atomic.Int64
}

const (
	failureShards = 16
	failureSlots  = 64 // in each
	// failureRate limits the failures that are looked at per second. The text of an error takes
	// microseconds, and every delivery may fail.
	failureRate = 500
)

type failureShard struct {
	mu   sync.Mutex
	list [failureSlots]failure
	used int // slots that hold a failure
	next int // slot that is written next
}

var failureSeed = maphash.MakeSeed()

// room reports whether another failure is looked at in this second.
func (t *failureTable) room(second int64) bool {
	if old := t.window.Load(); old != second && t.window.CompareAndSwap(old, second) {
		t.noted.Store(0)
	}
	return t.noted.Add(1) <= failureRate
}

// note remembers f.
func (t *failureTable) note(f failure) {
	if f.Key.ID == "" || len(f.Key.ID) > dedup.MaxPart {
		return
	}
	f.At = time.Now()
	f.Key = ownKey(f.Key)
	s := &t.shards[maphash.String(failureSeed, f.Key.ID)%failureShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list[:s.used] {
		if s.list[i].Key == f.Key {
			s.list[i] = f
			return
		}
	}
	s.list[s.next] = f
	s.next = (s.next + 1) % failureSlots
	s.used = min(s.used+1, failureSlots)
}

// byID returns the failures of an event ID.
func (t *failureTable) byID(id string) (all []failure) {
	s := &t.shards[maphash.String(failureSeed, id)%failureShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list[:s.used] {
		if s.list[i].Key.ID == id {
			all = append(all, s.list[i])
		}
	}
	return all
}

// ownKey does not hold on to a whole message by one of its substrings.
func ownKey(k dedup.Key) dedup.Key {
	return dedup.Key{
		Tenant: strings.Clone(k.Tenant), Scope: k.Scope, Type: strings.Clone(k.Type),
		ID: strings.Clone(k.ID),
	}
}
