package runner

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"
)

// Backoff waits longer each time, up to 10 s. The random part keeps members from retrying in step
// (K-18, K-42).
type Backoff struct {
	// Tries is how often Wait was called.
	Tries int
}

const (
	minBackoff     = 500 * time.Millisecond
	maxBackoff     = 10 * time.Second
	maxUnreachable = 3 * time.Second
)

// Wait returns the cause of ctx if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return b.wait(ctx, maxBackoff) }

// waitAfter is Wait, but no longer than 3 s if err is a broker that cannot be connected to. Such
// tries disturb no member of the group, and a broker that is back must not wait for its clients.
func (b *Backoff) waitAfter(ctx context.Context, err error) error {
	if unreachable(err) {
		return b.wait(ctx, maxUnreachable)
	}
	return b.wait(ctx, maxBackoff)
}

// unreachable reports whether err comes from a connection that could not be made.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (b *Backoff) wait(ctx context.Context, most time.Duration) error {
	limit := min(minBackoff<<min(b.Tries, 10), most)
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
