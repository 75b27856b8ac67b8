package observe

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// HandledObserver gets every run of a handler, once for each event of the run.
type HandledObserver interface {
	ObserveHandled(context.Context, HandledEvent)
}

// HandledEvent is one event of one run of a handler. [CallObserver] gets all events of a run
// together, which costs less.
type HandledEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key
	Attempt int
	Took    time.Duration
	// Err is nil if the handler succeeded. The success is not recorded in the store yet.
	Err error
}

// DuplicateObserver gets every delivery that was skipped because the store knows its event.
type DuplicateObserver interface {
	ObserveDuplicate(context.Context, DuplicateEvent)
}

// DuplicateEvent is a delivery of an event that the store knows.
type DuplicateEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key
	Verdict dedup.Verdict // Done, Rescheduled, Dead or Conflict
	// SameRecord reports that the handled record itself came again, after a rebalance, a restart
	// or a rewind. Otherwise the delivery is another record of the same event.
	SameRecord bool
	// Shadow reports that the handler ran nevertheless, see Config.Shadow of package idem.
	Shadow bool
	// Age is the time between the first record of the event and this one. Zero if not known.
	Age time.Duration
}

// ConflictObserver gets every settled copy with another content than the event of the
// same ID.
type ConflictObserver interface {
	ObserveConflict(context.Context, ConflictEvent)
}

// ConflictEvent is a copy with another content. [DuplicateObserver] gets a skipped copy too, and
// [DeadLetterObserver] a dead-lettered one.
type ConflictEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key
	// First is the record that the store has for the ID. Zero is possible for an event that waits
	// in the store.
	First dedup.Origin
	// Known is the state of the other event, see [dedup.Answer].Known.
	Known dedup.Verdict
	// DeadLetter reports that the copy became a dead letter. Otherwise the copy was skipped.
	DeadLetter bool
	// Shadow reports that the handler ran nevertheless, see Config.Shadow of package idem.
	Shadow bool
}

// DeadLetterObserver gets every dead letter after the broker has acknowledged it.
type DeadLetterObserver interface {
	ObserveDeadLetter(context.Context, DeadLetterEvent)
}

// DeadLetterEvent is a message that became a dead letter.
type DeadLetterEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key // zero if the event has no valid identity
	Topic   string    // topic of the dead letter
	Class   idemtype.Class
	Err     error
	// Omitted reports that the dead letter has no value, because the record is too large. The
	// record stays in its topic until Kafka deletes it.
	Omitted bool
}

// RetryObserver gets every failure that will be tried again.
type RetryObserver interface {
	ObserveRetry(context.Context, RetryEvent)
}

// RetryEvent is a failed event that will be tried again after Delay. If Deferred is set, the event
// has not failed: it waits behind a failed event of its Kafka key.
type RetryEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key
	Attempt int
	Delay   time.Duration
	// Topic is the retry topic of the copy. Empty for a retry in place and for an event that waits
	// in the store (KeyOrdered).
	Topic string
	// Later reports that the next attempt is a delayed retry, from the retry topic or the store.
	Later bool
	// Deferred reports that the event waits behind another event of its Kafka key.
	Deferred bool
	Err      error
}

// SkippedObserver gets every message without a handler, and every skipped record without an ID.
type SkippedObserver interface {
	ObserveSkipped(context.Context, SkippedEvent)
}

// SkippedEvent is a tombstone, an event of a type without a handler, or a record without an ID.
type SkippedEvent struct {
	Group     string
	Message   *idemtype.Message
	Type      string
	Tombstone bool
	NoID      bool // the record has no event ID, and its handler skips such records (SkipNoID)
}

// ClaimObserver gets the answer of the store to every claim, once for each event.
// [StoreCallObserver] gets all answers of a call together, which costs less.
type ClaimObserver interface {
	ObserveClaim(context.Context, ClaimEvent)
}

// ClaimEvent is the answer for one event. Verdict is zero if the store gave no answer.
type ClaimEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key
	Verdict dedup.Verdict
	Took    time.Duration // for a transactional handler: with the handler and the commit
	Err     error
}

// LostObserver gets every claim that was lost before the end of its event was recorded. The lease
// had ended, or another worker or a person had taken the event over. The event is claimed again.
type LostObserver interface {
	ObserveLost(context.Context, LostEvent)
}

// LostEvent is a lost claim.
type LostEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key
}

// StallObserver gets handlers that ignore their cancelled contexts, and events that another worker
// has held for longer than two leases.
type StallObserver interface {
	ObserveStall(context.Context, StallEvent)
}

// StallEvent is an event without progress.
type StallEvent struct {
	Group   string
	Message *idemtype.Message
	Key     dedup.Key
	For     time.Duration
	Busy    bool // another worker holds the claim; false: the handler of this process hangs
}
