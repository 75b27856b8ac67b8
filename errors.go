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

// Permanent marks err as not worth another attempt: the event goes to the dead-letter topic at once. Permanent(nil) is
// nil. The mark survives wrapping.
func Permanent(err error) error { return mark(markPermanent, 0, err) }

// NotApplied marks err as a failure that surely had no effect outside, such as a connection that was refused: the event
// may be tried again even under the policy [DeadLetterUncertain]. NotApplied(nil) is nil.
func NotApplied(err error) error { return mark(markNotApplied, 0, err) }

// RetryAfter marks err as transient: the event is not tried again before d has passed. A d within [RetryPolicy].InPlace is
// waited for in place. A longer d becomes a delayed retry, if the handler has [RetryTopics] or [KeyOrdered]: KeyOrdered waits
// for d, RetryTopics takes the shortest unused delay of at least d. If d is longer than every delay of RetryTopics, the event
// waits for the longest delay again, and no attempt is counted. An event without such a delay, or without delayed retries, is
// dead-lettered. A d of zero or less asks for no delay. RetryAfter(d, nil) is nil.
func RetryAfter(d time.Duration, err error) error { return mark(markRetryAfter, d, err) }

// Unavailable marks err as not the event's fault: something every event needs is down. The event waits in its place, with pauses
// of up to 2 s, and no attempt is counted. After [RetryPolicy].Outage, 15 minutes by default, the error counts as an ordinary
// failure, so that an event that is wrong about this is found. Unavailable(nil) is nil.
//
// All marks mean the same on errors of the functions that read an event: [Decode], [ID], [Tenant], [Type]. The event waits in its
// place and holds no claim. What has an identity is given delayed retries like an event whose handler fails; a dead letter of what
// could not be read leaves no record in the store.
func Unavailable(err error) error { return mark(markUnavailable, 0, err) }

type markKind uint8

const (
	markPermanent markKind = iota
	markNotApplied
	markRetryAfter
	markUnavailable
)

var markNames = [...]string{"permanent", "not applied", "retry after", "unavailable"}

// markedError says what should happen next. Marks of several kinds may be nested or joined; each kind is found on its own.
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

// wantedMark is what errors.As is asked for: it looks through all branches of a tree, and no error is of this type, so that
// the marks themselves are asked.
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

// findMark returns the first mark of that kind in err's tree: the outermost one of the first branch that has one.
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

// ErrorMark names the outermost mark in err's tree, for metrics and the like: "permanent", "not_applied", "retry_after" or "unavailable"; empty if
// there is none.
func ErrorMark(err error) string {
	var m *markedError
	if !errors.As(err, &m) {
		return ""
	}
	return strings.ReplaceAll(markNames[m.kind], " ", "_")
}

// The errors of a Processor.
var (
	// ErrBusy says that another worker holds a live claim on the event. It is not lost and not done: come again.
	ErrBusy = errors.New("event is being handled elsewhere")
	// ErrNotDue: the message is a copy for a later attempt, and its time has not come.
	ErrNotDue = errors.New("later attempt is not due yet")
	// ErrNoProducer says that an event must go to a dead-letter topic and [Config].Producer is nil.
	ErrNoProducer = errors.New("no producer for dead letters")
	// ErrTooLarge is returned by a [Producer] for a message that the broker will never take because of its size. The dead
	// dead letter is then sent again without the value (T-04).
	ErrTooLarge = errors.New("message too large")
	// ErrRefused is returned by a [Producer] for a message that the broker will never take as it is, for another reason than
	// its size, such as a time it does not accept. The dead letter is then sent with the present time; the record's own is
	// in its headers.
	ErrRefused = errors.New("message refused")
	// ErrNoTopic is returned by a [Producer] for a message whose topic is not there, has no such name, or must not be written to.
	ErrNoTopic = errors.New("topic cannot be written to")
	// ErrStopping is the cause of a handler's cancelled context when the time for a clean stop is nearly over.
	ErrStopping = errors.New("consumer is stopping")
	// ErrPartitionLost, as the cause of the context given to HandleBatch, says that the partition belongs to another
	// worker already: handlers are cancelled at once, without grace.
	ErrPartitionLost = errors.New("partition lost")
	// ErrTooOld says that an event lies before what the store still remembers, and that its handler stops at that: see
	// [WhenTooOld] for the other ways.
	ErrTooOld = errors.New("event is older than what the store remembers: rewind less far, or choose with idem.WhenTooOld")
	// ErrHandlerTimeout is the cause of a handler's cancelled context when it has run longer than its [Timeout].
	ErrHandlerTimeout = errors.New("handler timed out")
	// ErrAbandoned says that a handler went on after its context was cancelled, and was left behind; or that so many were
	// that the process should end. It is dedup.ErrAbandoned. A handler may return an error that matches it, such as that of a client of its
	// own: it is an error like others.
	ErrAbandoned = dedup.ErrAbandoned
)

// WaitError says that the next message cannot be settled yet and when to come again. It wraps [ErrBusy] or
// [dedup.ErrUnavailable].
type WaitError struct {
	Err   error
	After time.Duration
}

// Error names the reason and the time.
func (e *WaitError) Error() string { return fmt.Sprintf("%v: try again in %s", e.Err, e.After) }

// Unwrap returns the reason.
func (e *WaitError) Unwrap() error { return e.Err }

// PanicError is the failure of a handler that panicked, or that ended its goroutine with runtime.Goexit.
type PanicError struct {
	Value any    // what was passed to panic; nil after Goexit
	Stack []byte // at most 4 KiB
}

// Error shows the value, if it is an error or a string, without the stack. Of another value it names the type only: it may
// be the event itself.
func (e *PanicError) Error() string {
	switch e.Value.(type) {
	case nil:
		return "handler called runtime.Goexit or panicked with nil"
	case error, string:
		return fmt.Sprintf("handler panicked: %v", e.Value)
	}
	return fmt.Sprintf("handler panicked with a %T", e.Value)
}

// Unwrap returns the value if it was an error.
func (e *PanicError) Unwrap() error { err, _ := e.Value.(error); return err }

// BatchError is returned by a batch handler ([OnBatch], [OnBatchTx]) to say which events failed: the key is the index into
// the events it was given, the value is an error as a handler of one event would return it, with the same marks
// ([Permanent], [NotApplied] and so on). Events that are not named have succeeded. An empty BatchError is a success; one
// that names an event which was not there is taken as an error about all of them.
type BatchError map[int]error

// Error shows the first of the errors and how many there are.
func (e BatchError) Error() string {
	if len(e) == 0 {
		return "no event of the batch failed"
	}
	first := slices.Min(slices.Collect(maps.Keys(e)))
	return fmt.Sprintf("%d events of the batch failed, the first is event %d: %v", len(e), first, e[first])
}
