package engine

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/idemtype"
)

// withDefaults replaces the zeros of p by the defaults.
func withDefaults(p idemtype.RetryPolicy) idemtype.RetryPolicy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, 5)
	p.MinBackoff = cmp.Or(p.MinBackoff, 100*time.Millisecond)
	p.MaxBackoff = cmp.Or(p.MaxBackoff, max(2*time.Second, p.MinBackoff))
	p.InPlace = cmp.Or(p.InPlace, 5*time.Second)
	p.Outage = cmp.Or(p.Outage, 15*time.Minute)
	return p
}

func validateRetry(p idemtype.RetryPolicy) error {
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

// backoff returns the pause after the given number of failures. draw is from [0, 1).
func backoff(p idemtype.RetryPolicy, failures int, draw float64) time.Duration {
	return time.Duration(draw*float64(ceiling(p.MinBackoff, p.MaxBackoff, failures))) + 1
}

// ceiling returns low for n = 1, and doubles with each further n up to high.
func ceiling(low, high time.Duration, n int) time.Duration {
	if shift := max(n-1, 0); low <= high>>shift { // low<<shift may overflow
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
