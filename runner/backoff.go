package runner

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff waits longer each time, up to 10 s. The random part keeps members from retrying in step
// (K-18, K-42).
type Backoff struct {
	// Tries is how often Wait was called.
	Tries int
}

const (
	minBackoff = 500 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Wait returns the cause of ctx if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error {
	limit := min(minBackoff<<min(b.Tries, 10), maxBackoff)
	b.Tries++
	return Pause(ctx, limit/2+rand.N(limit/2)) //nolint:gosec // not a secret
}

// Pause waits for d, or returns the cause of ctx if ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
