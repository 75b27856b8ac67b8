package consumer

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff waits longer each time, up to 10 s. The random part keeps members from retrying in step
// (K-18, K-42).
type backoff struct{ tries int }

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// wait returns the cause of ctx if ctx ends first.
func (b *backoff) wait(ctx context.Context) error {
	limit := min(minBackoff<<min(b.tries, 10), maxBackoff)
	b.tries++
	return pause(ctx, limit/2+rand.N(limit/2)) //nolint:gosec // not a secret
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
