package idem

import (
	"time"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/mark"
)

// Permanent marks err as permanent: another attempt would fail too. The event becomes a dead letter
// at once, and the store records the event as dead. Permanent(nil) is nil. The mark survives
// wrapping with %w.
func Permanent(err error) error { return mark.New(mark.Permanent, 0, err) }

// NotApplied marks err as a failure that surely had no effect, such as a refused connection. The
// event may be tried again, also under [DeadLetterUncertain]. NotApplied(nil) is nil.
func NotApplied(err error) error { return mark.New(mark.NotApplied, 0, err) }

// RetryAfter marks err as transient and sets the earliest time of the next attempt: d from now. A d
// of zero or less sets no time. RetryAfter(d, nil) is nil.
//
//   - A d within [RetryPolicy].InPlace is waited for in place.
//   - A longer d becomes a delayed retry with [KeyOrdered] after d, or with [RetryTopics] after the
//     next delay of at least d. If d is longer than every delay of RetryTopics, the event waits for
//     the longest delay again, and no attempt is counted.
//   - Without delayed retries, or if no later delay is left, the event becomes a dead letter of
//     [ClassRetryAfter].
//
// Beside [Unavailable], d counts only when the outage counts as an ordinary failure.
func RetryAfter(d time.Duration, err error) error { return mark.New(mark.RetryAfter, d, err) }

// Unavailable marks err as an outage of a dependency that every event needs. The event waits in its
// place, with pauses of up to 2 s, and no attempt is counted. After [RetryPolicy].Outage, 15
// minutes by default, the error counts as an ordinary failure. Unavailable(nil) is nil.
//
// All marks mean the same on errors of the functions that read an event: [Decode], [DecodeWith],
// [ID], [Tenant], [Type]. The event then waits without a claim. An event with an identity gets
// delayed retries as after a failure of the handler. A dead letter of an event that could not be
// read leaves no record in the store.
func Unavailable(err error) error { return mark.New(mark.Unavailable, 0, err) }

// ErrorMark returns the outermost mark in the tree of err: "permanent", "not_applied",
// "retry_after" or "unavailable". Empty without a mark. The values may be used as metric labels.
func ErrorMark(err error) string { return mark.Label(err) }

// The errors of a [Processor], see package idemtype for their meanings. Match them with errors.Is.
var (
	ErrBusy           = idemtype.ErrBusy
	ErrNotDue         = idemtype.ErrNotDue
	ErrNoProducer     = idemtype.ErrNoProducer
	ErrTooLarge       = idemtype.ErrTooLarge
	ErrRefused        = idemtype.ErrRefused
	ErrNoTopic        = idemtype.ErrNoTopic
	ErrStopping       = idemtype.ErrStopping
	ErrPartitionLost  = idemtype.ErrPartitionLost
	ErrTooOld         = idemtype.ErrTooOld
	ErrHandlerTimeout = idemtype.ErrHandlerTimeout
	ErrAbandoned      = idemtype.ErrAbandoned
)

// WaitError means that the next message cannot be settled yet, see [idemtype.WaitError].
type WaitError = idemtype.WaitError

// PanicError is the failure of a handler that panicked, see [idemtype.PanicError].
type PanicError = idemtype.PanicError

// BatchError names the events of a batch that failed, see [idemtype.BatchError].
type BatchError = idemtype.BatchError
