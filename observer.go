package idem

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Observer watches a processor: any value that implements one or more of the small interfaces below. Methods are called
// on the path of the event, from several goroutines at once: they must be quick and must not block. An observer that
// implements none of them is a wiring mistake.
type Observer any

// HandledObserver is told of every run of a handler.
type HandledObserver interface {
	ObserveHandled(context.Context, HandledEvent)
}

// HandledEvent is one run of a handler, of one of its events. [CallObserver] is told of all events of a call together, which costs less.
type HandledEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key
	Attempt int
	Took    time.Duration
	// Err is nil if the handler succeeded. Its effect is recorded after this.
	Err error
}

// DuplicateObserver is told of every delivery that was not run because its event was handled before.
type DuplicateObserver interface {
	ObserveDuplicate(context.Context, DuplicateEvent)
}

// DuplicateEvent is a delivery of an event that the store knows.
type DuplicateEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key
	Verdict dedup.Verdict // Done, Rescheduled, Dead or Conflict
	// SameRecord: the record that was handled came again, after a rebalance, a restart or a rewind. Otherwise it is a copy
	// elsewhere in the log. Nothing finer can be told (rule 40).
	SameRecord bool
	// Shadow says that it was run all the same, see [Config].Shadow.
	Shadow bool
	// Age is the time between the first delivery's record and this one's; zero if it is not known.
	Age time.Duration
}

// ConflictObserver is told of every copy whose content differs from that of the event that has its ID, once it is settled.
type ConflictObserver interface {
	ObserveConflict(context.Context, ConflictEvent)
}

// ConflictEvent is such a copy. It was skipped, which [DuplicateObserver] is told too, or dead-lettered, which
// [DeadLetterObserver] is told too.
type ConflictEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key
	// First is the delivery that the store has on record for the ID. Of an event that waits in the store it may be zero.
	First dedup.Origin
	// Known is what had become of the other event: see [dedup.Answer].Known.
	Known dedup.Verdict
	// DeadLetter says that the copy was dead-lettered; otherwise it was skipped.
	DeadLetter bool
	// Shadow says that it was run all the same, see [Config].Shadow.
	Shadow bool
}

// DeadLetterObserver is told of every dead letter, once it is acknowledged.
type DeadLetterObserver interface {
	ObserveDeadLetter(context.Context, DeadLetterEvent)
}

// DeadLetterEvent is a message that was given up.
type DeadLetterEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key // zero if the event has no valid identity
	Topic   string    // of the dead letter
	Class   Class
	Err     error
	// Omitted says that the dead letter has no value: the record is too large to be copied, and is to be fetched from its origin
	// while it is there (rule 45).
	Omitted bool
}

// RetryObserver is told when a failed event will be tried again.
type RetryObserver interface {
	ObserveRetry(context.Context, RetryEvent)
}

// RetryEvent is a failure that will be tried again after Delay, or an event that has to wait for one (Deferred).
type RetryEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key
	Attempt int
	Delay   time.Duration
	// Topic it was published to for that; empty if it is tried in its place, or waits in the store ([KeyOrdered]).
	Topic string
	// Later says that the next attempt is made elsewhere: from the retry topic, or from the store.
	Later bool
	// Deferred says that it has not failed, and waits in the store behind one of its Kafka key that has.
	Deferred bool
	Err      error
}

// SkippedObserver is told of messages that nobody handles.
type SkippedObserver interface {
	ObserveSkipped(context.Context, SkippedEvent)
}

// SkippedEvent is a tombstone, or an event of a type without handler.
type SkippedEvent struct {
	Group     string
	Message   *Message
	Type      string
	Tombstone bool
}

// ClaimObserver is told of every answer of a store, by event. [StoreCallObserver] is told of all answers to a call together, which costs less.
type ClaimObserver interface {
	ObserveClaim(context.Context, ClaimEvent)
}

// ClaimEvent is one answer. The verdict is zero if there was none.
type ClaimEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key
	Verdict dedup.Verdict
	Took    time.Duration // for a transactional handler with the handler and the commit
	Err     error
}

// StoreObserver is told when a store, or the producer of dead letters, goes and when it comes back, or when the processor is closed
// meanwhile: of each Down there is an end.
type StoreObserver interface {
	ObserveStore(context.Context, StoreEvent)
}

// StoreEvent is a change of state of what a processor depends on.
type StoreEvent struct {
	Group string
	Name  string        // "store *pgstore.Store", "producer"
	Down  bool          // false: it is back, or Ended
	Ended bool          // the processor was closed while it was away: nothing more is known of it
	For   time.Duration // how long it was away, when it is back, or as far as is known
	Err   error         // why, when it is down
}

// StallObserver is told when a handler goes on although its time is over, and when an event has been busy elsewhere for
// longer than two leases.
type StallObserver interface {
	ObserveStall(context.Context, StallEvent)
}

// StallEvent is an event that does not move.
type StallEvent struct {
	Group   string
	Message *Message
	Key     dedup.Key
	For     time.Duration
	Busy    bool // held elsewhere; false: our own handler hangs
}

// observers are the hooks of a processor, sorted once.
type observers struct {
	handled    []HandledObserver
	duplicate  []DuplicateObserver
	deadLetter []DeadLetterObserver
	retry      []RetryObserver
	skipped    []SkippedObserver
	claim      []ClaimObserver
	store      []StoreObserver
	stall      []StallObserver
	claimGroup []ClaimGroupObserver
	call       []CallObserver
	storeCall  []StoreCallObserver
	settled    []SettledObserver
	lost       []LostObserver
	conflict   []ConflictObserver
}

func pick[O any](list []O, o Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}

// add sorts o in and reports whether it implements anything.
func (s *observers) add(o Observer) bool {
	before := s.count()
	s.handled = pick(s.handled, o)
	s.duplicate = pick(s.duplicate, o)
	s.deadLetter = pick(s.deadLetter, o)
	s.retry = pick(s.retry, o)
	s.skipped = pick(s.skipped, o)
	s.claim = pick(s.claim, o)
	s.store = pick(s.store, o)
	s.stall = pick(s.stall, o)
	s.claimGroup = pick(s.claimGroup, o)
	s.call = pick(s.call, o)
	s.storeCall = pick(s.storeCall, o)
	s.settled = pick(s.settled, o)
	s.lost = pick(s.lost, o)
	s.conflict = pick(s.conflict, o)
	return s.count() > before
}

func (s *observers) count() int {
	return len(s.handled) + len(s.duplicate) + len(s.deadLetter) + len(s.retry) + len(s.skipped) + len(s.claim) +
		len(s.store) + len(s.stall) + len(s.claimGroup) + len(s.call) + len(s.storeCall) + len(s.settled) + len(s.lost) + len(s.conflict)
}
