package idem

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Permanent marks err as permanent: another attempt would fail too. The event becomes a dead letter
// at once, and the store records the event as dead. Permanent(nil) is nil. The mark survives
// wrapping with %w.
func Permanent(err error) error { return mark(markPermanent, 0, err) }

// NotApplied marks err as a failure that surely had no effect, such as a refused connection. The
// event may be tried again, also under [DeadLetterUncertain]. NotApplied(nil) is nil.
func NotApplied(err error) error { return mark(markNotApplied, 0, err) }

// RetryAfter marks err as transient and sets the earliest time of the next attempt: d from now. A d
// of zero or less sets no time. RetryAfter(d, nil) is nil.
//
//   - A d within [RetryPolicy].InPlace is waited for in place.
//   - A longer d becomes a delayed retry with [KeyOrdered] after d, or with [RetryTopics] after the
//     shortest unused delay of at least d. If d is longer than every delay of RetryTopics, the
//     event waits for the longest delay again, and no attempt is counted.
//   - Without delayed retries, or if all delays are used, the event becomes a dead letter of
//     [ClassRetryAfter].
func RetryAfter(d time.Duration, err error) error { return mark(markRetryAfter, d, err) }

// Unavailable marks err as an outage of a dependency that every event needs. The event waits in its
// place, with pauses of up to 2 s, and no attempt is counted. After [RetryPolicy].Outage, 15
// minutes by default, the error counts as an ordinary failure. Unavailable(nil) is nil.
//
// All marks mean the same on errors of the functions that read an event: [Decode], [ID], [Tenant],
// [Type]. The event then waits without a claim. An event with an identity gets delayed retries like
// an event whose handler fails. A dead letter of an event that could not be read leaves no record
// in the store.
func Unavailable(err error) error { return mark(markUnavailable, 0, err) }

type markKind uint8

const (
	markPermanent markKind = iota
	markNotApplied
	markRetryAfter
	markUnavailable
)

var markNames = [...]string{"permanent", "not applied", "retry after", "unavailable"}

// markedError is an error with a mark. Marks of several kinds may be nested or joined; each kind is
// found separately.
type markedError struct {
	kind  markKind
	after time.Duration
	err   error
}

func mark(kind markKind, after time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &markedError{kind: kind, after: after, err: err}
}

func (e *markedError) Error() string {
	if e.kind == markRetryAfter {
		return fmt.Sprintf("%s %s: %v", markNames[e.kind], e.after, e.err)
	}
	return markNames[e.kind] + ": " + e.err.Error()
}

func (e *markedError) Unwrap() error { return e.err }

// wantedMark is the target of errors.As, which looks through all branches of a tree. No error has
// this type, so errors.As calls the As methods of the marks.
type wantedMark struct {
	kind  markKind
	found *markedError
}

func (wantedMark) Error() string { return "mark" }

// As lets errors.As find the marks of one kind.
func (e *markedError) As(target any) bool {
	wanted, ok := target.(*wantedMark)
	if ok = ok && wanted.kind == e.kind; ok {
		wanted.found = e
	}
	return ok
}

// findMark returns the first mark of that kind in the tree of err: the outermost one of the first
// branch that has one.
func findMark(err error, kind markKind) (*markedError, bool) {
	if err == nil {
		return nil, false
	}
	wanted := wantedMark{kind: kind}
	ok := errors.As(err, &wanted)
	return wanted.found, ok
}

func hasMark(err error, kind markKind) bool {
	_, ok := findMark(err, kind)
	return ok
}

// ErrorMark returns the outermost mark in the tree of err: "permanent", "not_applied",
// "retry_after" or "unavailable". Empty without a mark. The values may be used as metric labels.
func ErrorMark(err error) string {
	var m *markedError
	if !errors.As(err, &m) {
		return ""
	}
	return strings.ReplaceAll(markNames[m.kind], " ", "_")
}

// The errors of a [Processor]. Match them with errors.Is.
var (
	// ErrBusy means that another worker holds the claim of the event. The event is not settled:
	// pass the message again later.
	ErrBusy = errors.New("event is being handled elsewhere")
	// ErrNotDue means that the message is a copy for a later attempt, whose time has not come.
	ErrNotDue = errors.New("later attempt is not due yet")
	// ErrNoProducer means that an event must become a dead letter, but [Config].Producer is nil.
	// The event is not settled.
	ErrNoProducer = errors.New("no producer for dead letters")
	// ErrTooLarge is returned by a [Producer] for a message that the broker refuses because of the
	// size. The dead letter is then sent again without the value.
	ErrTooLarge = errors.New("message too large")
	// ErrRefused is returned by a [Producer] for a message that the broker refuses for another
	// permanent reason, such as a time stamp out of range. The dead letter is then sent with the
	// present time. The record's own time is in [HeaderTime].
	ErrRefused = errors.New("message refused")
	// ErrNoTopic is returned by a [Producer] if the topic of a message does not exist, has an
	// invalid name, or may not be written to.
	ErrNoTopic = errors.New("topic cannot be written to")
	// ErrStopping is the cause of a handler's cancelled context shortly before the grace of a stop
	// ends. See [Config].Grace.
	ErrStopping = errors.New("consumer is stopping")
	// ErrPartitionLost, as the cause of the context of HandleBatch, means that another worker
	// already owns the partition. Handlers are cancelled at once, without grace.
	ErrPartitionLost = errors.New("partition lost")
	// ErrTooOld means that an event is older than the memory of the store, and that its handler has
	// [StopTooOld]. Rewind less far, or choose another policy with [WhenTooOld].
	ErrTooOld = errors.New(
		"event is older than the store's memory: rewind less far, or set idem.WhenTooOld")
	// ErrHandlerTimeout is the cause of a handler's cancelled context after [Timeout].
	ErrHandlerTimeout = errors.New("handler timed out")
	// ErrAbandoned means that a handler still ran after the cancellation of its context and was
	// abandoned, or that too many handlers were. The process should end. ErrAbandoned is
	// dedup.ErrAbandoned.
	//
	// If a handler returns an error that matches ErrAbandoned, such as that of a client of its own,
	// the error counts like any other error.
	ErrAbandoned = dedup.ErrAbandoned
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

// BatchError is returned by a batch handler ([OnBatch], [OnBatchTx]) to name the events that
// failed. A key is the index of an event in the slice that was passed. The value is an error as a
// handler of one event returns it, with the same marks ([Permanent], [NotApplied] and so on).
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
