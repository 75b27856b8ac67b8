package idemtest

import (
	"context"
	"sync"

	"github.com/idem-go/idem"
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

// journal observes the processor. Safe for concurrent use.
type journal struct {
	mu       sync.Mutex
	ends     map[spot]outcome // of the deliveries of the present call
	runs     map[string]int   // by ID: runs of the handler
	success  map[string]int   // by ID: runs without an error
	waits    map[string]bool  // by ID: the event is deferred in the store
	handled  map[string]int   // by ID: deliveries that were settled as handled
	copies   map[string]int   // by ID: deliveries that were duplicates
	conflict map[string]int   // by ID: copies with another content
}

func newJournal() *journal {
	return &journal{
		ends: make(map[spot]outcome), runs: make(map[string]int), success: make(map[string]int),
		waits: make(map[string]bool), handled: make(map[string]int), copies: make(map[string]int),
		conflict: make(map[string]int),
	}
}

var (
	_ observe.HandledObserver    = (*journal)(nil)
	_ observe.DuplicateObserver  = (*journal)(nil)
	_ observe.ConflictObserver   = (*journal)(nil)
	_ observe.DeadLetterObserver = (*journal)(nil)
	_ observe.RetryObserver      = (*journal)(nil)
	_ observe.SkippedObserver    = (*journal)(nil)
)

func (j *journal) end(m *idem.Message, o outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ends[spotOf(m)] = o
}

// ObserveHandled implements [observe.HandledObserver].
func (j *journal) ObserveHandled(_ context.Context, e observe.HandledEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	id := e.Key.ID
	if j.runs[id]++; e.Err != nil {
		return
	}
	j.success[id]++
	if j.waits[id] { // no delivery is settled at its end
		delete(j.waits, id)
		j.handled[id]++
	}
}

// ObserveDuplicate implements [observe.DuplicateObserver].
func (j *journal) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	if !e.Shadow {
		j.end(e.Message, duplicate)
	}
}

// ObserveConflict implements [observe.ConflictObserver].
func (j *journal) ObserveConflict(_ context.Context, e observe.ConflictEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.conflict[e.Key.ID]++
}

// ObserveDeadLetter implements [observe.DeadLetterObserver].
func (j *journal) ObserveDeadLetter(_ context.Context, e observe.DeadLetterEvent) {
	j.end(e.Message, deadLettered)
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.waits, e.Key.ID)
}

// ObserveRetry implements [observe.RetryObserver].
func (j *journal) ObserveRetry(_ context.Context, e observe.RetryEvent) {
	if !e.Later && !e.Deferred {
		return
	}
	j.end(e.Message, rescheduled)
	if e.Topic == "" {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.waits[e.Key.ID] = true
	}
}

// ObserveSkipped implements [observe.SkippedObserver].
func (j *journal) ObserveSkipped(_ context.Context, e observe.SkippedEvent) {
	j.end(e.Message, skipped)
}

// settled takes the end of a settled delivery of an event. m is the record that the observers saw.
func (j *journal) settled(id string, m *idem.Message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := spotOf(m)
	switch j.ends[at] {
	case handled:
		j.handled[id]++
	case duplicate:
		j.copies[id]++
	case deadLettered, rescheduled, skipped:
	}
	delete(j.ends, at)
}

// count reads one of the maps.
func (j *journal) count(of map[string]int, id string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return of[id]
}
