package dedup

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// retry calls fn until it succeeds, fails for good, or tries (zero: no limit) or ctx end. Between
// calls it waits, longer each time.
func retry(ctx context.Context, tries int, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if err == nil || errors.Is(err, ErrClaimLost) || errors.Is(err, ErrOrder) ||
			errors.Is(err, ErrKey) {
			return err
		}
		if try == tries || backOff(ctx, try) != nil {
			return err
		}
	}
}

// backOff waits for half of the pause of a try, and a random part of the other half. Callers whose
// shared call failed do not meet again in the next one.
func backOff(ctx context.Context, try int) error {
	half := min(time.Second, 20*time.Millisecond<<min(try, 6)) / 2
	return sleep(ctx, half+rand.N(half)) //nolint:gosec // no secret
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
