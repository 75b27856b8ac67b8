package idemtype

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
)

// The errors of a processor. Match them with errors.Is.
var (
	// ErrBusy means that another worker holds the claim of the event. The event is not settled:
	// pass the message again later.
	ErrBusy = errors.New("event is being handled elsewhere")
	// ErrNotDue means that the message is a copy for a later attempt that is not due yet.
	ErrNotDue = errors.New("later attempt is not due yet")
	// ErrNoProducer means that an event must become a dead letter, but Config.Producer is nil.
	// The event is not settled.
	ErrNoProducer = errors.New("no producer for dead letters")
	// ErrTooLarge is returned by a [Producer] for a message that the broker refuses because of the
	// size. The dead letter is then sent again without the value.
	ErrTooLarge = errors.New("message too large")
	// ErrRefused is returned by a [Producer] for a message that the broker refuses for another
	// permanent reason, such as a time stamp out of range. The dead letter is then sent with the
	// present time. The record's own time is in header idem-origin-time.
	ErrRefused = errors.New("message refused")
	// ErrNoTopic is returned by a [Producer] if the topic of a message does not exist, has an
	// invalid name, or may not be written to.
	ErrNoTopic = errors.New("topic cannot be written to")
	// ErrStopping is the cause of a handler's cancelled context shortly before the grace of a stop
	// ends. See Config.Grace of package idem.
	ErrStopping = errors.New("consumer is stopping")
	// ErrPartitionLost, as the cause of the context of HandleBatch, means that another worker
	// already owns the partition. Handlers are cancelled at once, without grace.
	//
	// If a handler returns an error that matches ErrStopping or ErrPartitionLost while its context
	// has not ended, the error counts like any other error.
	ErrPartitionLost = errors.New("partition lost")
	// ErrTooOld means that an event is older than the memory of the store, and that its handler has
	// [StopTooOld]. Rewind less far, or choose another policy with WhenTooOld.
	ErrTooOld = errors.New(
		"event is older than the store's memory: rewind less far, or set idem.WhenTooOld")
	// ErrHandlerTimeout is the cause of a handler's cancelled context after the option Timeout.
	ErrHandlerTimeout = errors.New("handler timed out")
	// ErrAbandoned means that a handler still ran after the cancellation of its context and was
	// abandoned, or that too many handlers were. The process should end. ErrAbandoned is
	// dedup.ErrAbandoned.
	//
	// If a handler returns an error that matches ErrAbandoned, such as that of a client of its own,
	// the error counts like any other error.
	ErrAbandoned = dedup.ErrAbandoned
)

// The errors of an extractor of identities.
var (
	// ErrNotFound means that the message has no identity in the place of the extractor.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous means that the message has several identities that differ.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrInvalid means that the message has an identity that no store can keep.
	ErrInvalid = errors.New("invalid")
)

// WaitError means that the next message cannot be settled yet. Pass the remaining messages again
// after the duration After. The error wraps [ErrBusy], [ErrNotDue] or [dedup.ErrUnavailable].
type WaitError struct {
	Err   error
	After time.Duration
}

// Error returns the reason and the duration.
func (e *WaitError) Error() string { return fmt.Sprintf("%v: try again in %s", e.Err, e.After) }

// Unwrap returns the reason.
func (e *WaitError) Unwrap() error { return e.Err }

// PanicError is the failure of a handler that panicked, or that called runtime.Goexit.
type PanicError struct {
	Value any    // the argument of panic; nil after Goexit
	Stack []byte // at most 4 KiB
}

// Error returns a text with the value, if that is an error or a string, and without the stack. For
// any other value the text has the type only, because the value may be the event.
func (e *PanicError) Error() string {
	switch e.Value.(type) {
	case nil:
		return "handler called runtime.Goexit or panicked with nil"
	case error, string:
		return fmt.Sprintf("handler panicked: %v", e.Value)
	}
	return fmt.Sprintf("handler panicked with a %T", e.Value)
}

// Unwrap returns the value if that is an error.
func (e *PanicError) Unwrap() error { err, _ := e.Value.(error); return err }

// BatchError is returned by a batch handler (OnBatch, OnBatchTx) to name the events that
// failed. A key is the index of an event in the slice that was passed. The value is an error as a
// handler of one event returns it, with the same marks (Permanent, NotApplied and so on).
//
// The other events of the call have succeeded. An empty BatchError is a success. A BatchError with
// an index out of range counts as an error about the whole call.
type BatchError map[int]error

// Error returns the number of errors and the first one.
func (e BatchError) Error() string {
	if len(e) == 0 {
		return "no event of the batch failed"
	}
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("%d events of the batch failed, the first is event %d: %v",
		len(e), first, e[first])
}
