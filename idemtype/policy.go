package idemtype

import "time"

// UncertainPolicy decides about an uncertain event: the handler may have had its effect, but the
// store has no completion. The zero value is [RerunUncertain].
type UncertainPolicy uint8

const (
	// RerunUncertain runs the handler again, so the effect happens at least once. The handler
	// passes Event.IdempotencyKey to the outside API, which can then recognize a repetition.
	RerunUncertain UncertainPolicy = iota
	// DeadLetterUncertain never runs the handler again, so the effect happens at most once. Any
	// outcome but nil and NotApplied makes the event a dead letter for a person to decide: an
	// error, a panic, a time-out or a cancellation.
	DeadLetterUncertain
)

// ConflictPolicy decides about a conflict: the store knows the ID of an event with another content.
// The zero value is [SkipConflict].
type ConflictPolicy uint8

const (
	// SkipConflict skips the copy like a duplicate if the store has the other event as done. While
	// the other event is in flight, the copy waits. In any other state of the other event, the copy
	// becomes a dead letter, so that a correction of a failed event is not lost.
	SkipConflict ConflictPolicy = iota
	// DeadLetterConflict makes the copy a dead letter at once, in any state of the other event.
	DeadLetterConflict
)

// NoIDPolicy decides about a record without an event ID. A record with an invalid ID, or with
// several IDs that differ, becomes a dead letter under each policy. The zero value is
// [DeadLetterNoID].
type NoIDPolicy uint8

const (
	// DeadLetterNoID makes the record a dead letter of [ClassNoID].
	DeadLetterNoID NoIDPolicy = iota
	// SkipNoID skips the record.
	SkipNoID
	// RunNoID runs the handler without the store, so without protection: the effect happens at each
	// delivery of the record, and for each copy.
	RunNoID
)

// UnavailablePolicy lets a handler run while its store is down, so without protection. The zero
// value waits for the store. RunFor and MaxEvents belong together: both are positive, or both are
// zero.
type UnavailablePolicy struct {
	// RunFor limits for how long events run without the store, from the first such event on. After
	// RunFor events wait, also those that failed. Zero: events always wait.
	RunFor time.Duration
	// MaxEvents limits how many events run without the store in the process. After MaxEvents other
	// events wait. An event that fails counts once.
	MaxEvents int
	// After is how long the store must have been down before the first event runs. The default is
	// 5 s, so that a restart of the store lets no event run.
	After time.Duration
}

// TooOldPolicy decides about an event that is older than the memory of the store. The store cannot
// know whether such an event was handled. The zero value is the default of the registration
// function.
type TooOldPolicy uint8

const (
	// RunTooOld runs the event like a new one. Such events run at least once.
	RunTooOld TooOldPolicy = iota + 1 // zero is the default of the handler
	// DeadLetterTooOld makes the event a dead letter without a run. The default of On and OnBatch.
	DeadLetterTooOld
	// StopTooOld ends the consumer with an error that matches [ErrTooOld]. The default of OnTx and
	// OnBatchTx. Events beyond the horizon usually come by the thousand, after a rewind of
	// offsets.
	StopTooOld
)
