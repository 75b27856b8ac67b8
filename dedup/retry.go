package dedup

import (
	"context"
	"errors"
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

func backOff(ctx context.Context, try int) error {
	return sleep(ctx, min(time.Second, 20*time.Millisecond<<min(try, 6)))
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
