package idemtype

import (
	"math"
	"time"
)

// NoLimit as [RetryPolicy].MaxAttempts sets no limit of attempts.
const NoLimit = math.MaxInt

// Forever as a duration sets no limit of time.
const Forever time.Duration = math.MaxInt64

// RetryPolicy limits how often and for how long a failing event is tried again before it becomes a
// dead letter, or a delayed retry. The zero value of each field is its default.
type RetryPolicy struct {
	// MaxAttempts limits all runs of an event, including the first. The default is 5; 1 means no
	// retry; [NoLimit] sets no limit.
	MaxAttempts int
	// MinBackoff is the upper bound of the first pause. The bound doubles with each failure up to
	// MaxBackoff. A pause is drawn evenly between zero and the bound ("full jitter"), so that
	// workers do not retry at the same time. The default is 100 ms.
	MinBackoff time.Duration
	// MaxBackoff is the upper bound of every pause. The default is 2 s, or MinBackoff if that is
	// longer.
	MaxBackoff time.Duration
	// InPlace limits for how long retries of one event may block its lane, from the first failure
	// on, pauses included. The default is 5 s; [Forever] sets no limit.
	InPlace time.Duration
	// Outage limits for how long one event waits for a dependency that a handler or a reading
	// function reports as unavailable. Its lane waits too. The time in which the store is down
	// does not count. After Outage the error counts as an ordinary failure. The pauses go up to
	// 2 s. The default is 15 min; [Forever] sets no limit.
	Outage time.Duration
}
