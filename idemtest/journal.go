package idemtest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// outcome is the end of one delivery.
type outcome uint8

const (
	handled outcome = iota
	duplicate
	deadLettered
	rescheduled
	skipped
)

// spot names a record.
type spot struct {
	place
	offset int64
}

func spotOf(m *idem.Message) spot { return spot{place{m.Topic, m.Partition}, m.Offset} }

// subject is one event for the counts: the key that the processor resolved. A record without a key
// has its Record.ID instead, and without that its place.
type subject struct {
	key    dedup.Key
	record string
	at     spot
}

// counts are the numbers of one event.
type counts struct {
	runs      int // of the handler
	success   int // runs without an error
	handled   int // deliveries that were settled as handled
	copies    int // deliveries that were duplicates
	conflicts int // copies with another content
}

// journal observes the processor. Safe for concurrent use.
type journal struct {
	mu    sync.Mutex
	ids   map[spot]string    // Record.ID of the delivered records
	keys  map[spot]dedup.Key // of the records with an identity that the processor has read
	ends  map[spot]outcome   // of the deliveries of the present call
	waits map[subject]bool   // events that are deferred in the store
	of    map[subject]*counts
}

func newJournal() *journal {
	return &journal{
		ids: make(map[spot]string), keys: make(map[spot]dedup.Key), ends: make(map[spot]outcome),
		waits: make(map[subject]bool), of: make(map[subject]*counts),
	}
}

var (
	_ observe.ClaimObserver       = (*journal)(nil)
	_ observe.HandledObserver     = (*journal)(nil)
	_ observe.DuplicateObserver   = (*journal)(nil)
	_ observe.ConflictObserver    = (*journal)(nil)
	_ observe.DeadLetterObserver  = (*journal)(nil)
	_ observe.RetryObserver       = (*journal)(nil)
	_ observe.SkippedObserver     = (*journal)(nil)
	_ observe.UnprotectedObserver = (*journal)(nil)
)

// delivered notes the Record.ID of a record.
func (j *journal) delivered(m *idem.Message, id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ids[spotOf(m)] = id
}

// subject returns the event of a record. j.mu is locked.
func (j *journal) subject(at spot) subject {
	if key, ok := j.keys[at]; ok {
		return subject{key: key}
	}
	if id := j.ids[at]; id != "" {
		return subject{record: id}
	}
	return subject{at: at}
}

// note calls fn with the event of a record. key is that of the report, and may have no ID.
func (j *journal) note(m *idem.Message, key dedup.Key, fn func(at spot, s subject, n *counts)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := spotOf(m)
	if key.ID != "" {
		j.keys[at] = key
	}
	s := j.subject(at)
	if j.of[s] == nil {
		j.of[s] = &counts{}
	}
	fn(at, s, j.of[s])
}

// ObserveClaim implements [observe.ClaimObserver].
func (j *journal) ObserveClaim(_ context.Context, e observe.ClaimEvent) {
	j.note(e.Message, e.Key, func(spot, subject, *counts) {})
}

// ObserveUnprotected implements [observe.UnprotectedObserver].
func (j *journal) ObserveUnprotected(_ context.Context, e observe.UnprotectedEvent) {
	j.note(e.Message, e.Key, func(spot, subject, *counts) {})
}

// ObserveHandled implements [observe.HandledObserver].
func (j *journal) ObserveHandled(_ context.Context, e observe.HandledEvent) {
	j.note(e.Message, e.Key, func(_ spot, s subject, n *counts) {
		if n.runs++; e.Err != nil {
			return
		}
		n.success++
		if j.waits[s] { // no delivery is settled at its end
			delete(j.waits, s)
			n.handled++
		}
	})
}

// ObserveDuplicate implements [observe.DuplicateObserver].
func (j *journal) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	j.note(e.Message, e.Key, func(at spot, _ subject, _ *counts) {
		if !e.Shadow {
			j.ends[at] = duplicate
		}
	})
}

// ObserveConflict implements [observe.ConflictObserver].
func (j *journal) ObserveConflict(_ context.Context, e observe.ConflictEvent) {
	j.note(e.Message, e.Key, func(_ spot, _ subject, n *counts) { n.conflicts++ })
}

// ObserveDeadLetter implements [observe.DeadLetterObserver].
func (j *journal) ObserveDeadLetter(_ context.Context, e observe.DeadLetterEvent) {
	j.note(e.Message, e.Key, func(at spot, s subject, _ *counts) {
		j.ends[at] = deadLettered
		delete(j.waits, s)
	})
}

// ObserveRetry implements [observe.RetryObserver].
func (j *journal) ObserveRetry(_ context.Context, e observe.RetryEvent) {
	j.note(e.Message, e.Key, func(at spot, s subject, _ *counts) {
		if !e.Later && !e.Deferred {
			return
		}
		j.ends[at] = rescheduled
		if e.Topic == "" {
			j.waits[s] = true
		}
	})
}

// ObserveSkipped implements [observe.SkippedObserver].
func (j *journal) ObserveSkipped(_ context.Context, e observe.SkippedEvent) {
	j.note(e.Message, dedup.Key{}, func(at spot, _ subject, _ *counts) { j.ends[at] = skipped })
}

// settled takes the end of a settled delivery. m is the record that the observers saw.
func (j *journal) settled(m *idem.Message) {
	j.note(m, dedup.Key{}, func(at spot, _ subject, n *counts) {
		switch j.ends[at] {
		case handled:
			n.handled++
		case duplicate:
			n.copies++
		case deadLettered, rescheduled, skipped:
		}
		delete(j.ends, at)
	})
}

// record returns the Record.ID of a record.
func (j *journal) record(m *idem.Message) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ids[spotOf(m)]
}

// id returns the Record.ID of a record, and without one the ID that the processor has read.
func (j *journal) id(m *idem.Message) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := spotOf(m)
	return cmp.Or(j.ids[at], j.keys[at].ID)
}

// event returns the event of a record with this ID, as a Record.ID or as the ID that the processor
// has read.
func (j *journal) event(m *idem.Message, id string) (s subject, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := spotOf(m)
	return j.subject(at), id != "" && (j.ids[at] == id || j.keys[at].ID == id)
}

// find returns the numbers of the events with this ID, as [journal.event] finds them. A record
// without a key counts only if its handler has run, or if no event has the ID.
func (j *journal) find(id string) map[subject]counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	events, bare := make(map[subject]counts), make(map[subject]counts)
	add := func(at spot) {
		s, n := j.subject(at), counts{}
		if j.of[s] != nil {
			n = *j.of[s]
		}
		if s.key.ID == "" && n.runs+n.handled == 0 {
			bare[s] = n
			return
		}
		events[s] = n
	}
	for at, key := range j.keys {
		if id != "" && key.ID == id {
			add(at)
		}
	}
	for at, record := range j.ids {
		if id != "" && record == id {
			add(at)
		}
	}
	if len(events) == 0 {
		return bare
	}
	return events
}

// known returns all IDs that [journal.find] finds, in order.
func (j *journal) known() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	ids := make(map[string]bool)
	for _, id := range j.ids {
		ids[id] = true
	}
	for _, key := range j.keys {
		ids[key.ID] = true
	}
	delete(ids, "")
	return slices.Sorted(maps.Keys(ids))
}

// ordered returns events in the order of their types.
func ordered(events map[subject]counts) []subject {
	return slices.SortedFunc(maps.Keys(events), func(a, b subject) int { return a.key.Compare(b.key) })
}
