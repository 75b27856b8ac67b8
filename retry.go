package idem

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// NoLimit, as [RetryPolicy].MaxAttempts, lets an event fail as often as it likes.
const NoLimit = math.MaxInt

// Forever, as a duration, is no limit: [RetryPolicy].InPlace, [Config].BusyWait.
const Forever time.Duration = math.MaxInt64

// RetryPolicy says how often and how long a failing event is tried again before it goes to the dead-letter topic. The
// zero value of each field is its default.
type RetryPolicy struct {
	// MaxAttempts counts all runs, the first included. Defaults to 5; 1 is no retry; [NoLimit].
	MaxAttempts int
	// MinBackoff is the upper end of the first wait; it doubles with each failure up to MaxBackoff. The wait is drawn
	// evenly between zero and that ("full jitter"), so that workers do not come back in step (T-07). Defaults to 100 ms.
	MinBackoff time.Duration
	// MaxBackoff defaults to 2 s.
	MaxBackoff time.Duration
	// InPlace is how long retries of one event may hold up its lane in all, counted from its first failure, waits included.
	// Defaults to 5 s; [Forever].
	InPlace time.Duration
	// Outage is how long one event waits, and its lane with it, for something that a handler or a reading function reports as
	// [Unavailable]. Time in which the store is down too does not count. Then the error is an ordinary failure. The waits go up
	// to 2 s. Defaults to 15 min; [Forever].
	Outage time.Duration
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 5)
	p.MinBackoff = cmp.Or(p.MinBackoff, 100*time.Millisecond)
	p.MaxBackoff = cmp.Or(p.MaxBackoff, max(2*time.Second, p.MinBackoff))
	p.InPlace = cmp.Or(p.InPlace, 5*time.Second)
	p.Outage = cmp.Or(p.Outage, 15*time.Minute)
	return p
}

func (p RetryPolicy) validate() error {
	switch {
	case p.MaxAttempts < 1:
		return errors.New("Retry: MaxAttempts must be at least 1")
	case p.MinBackoff < 0 || p.MaxBackoff < p.MinBackoff:
		return errors.New("Retry: MaxBackoff must not be below MinBackoff, nor either negative")
	case p.InPlace < 0:
		return errors.New("Retry: InPlace must not be negative")
	case p.Outage < 0:
		return errors.New("Retry: Outage must not be negative")
	}
	return nil
}

// backoff is the wait after the given number of failures. draw is from [0, 1).
func (p RetryPolicy) backoff(failures int, draw float64) time.Duration {
	return time.Duration(draw*float64(ceiling(p.MinBackoff, p.MaxBackoff, failures))) + 1
}

// ceiling doubles from low to high.
func ceiling(low, high time.Duration, n int) time.Duration {
	if shift := max(n-1, 0); shift < 30 && low<<shift < high {
		return low << shift
	}
	return high
}

func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d) + 1
}
