package outbox

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

const forever = time.Duration(math.MaxInt64)

// pause waits for d, or until something comes from news, and reports whether ctx has not ended.
func pause(ctx context.Context, news <-chan struct{}, d time.Duration) bool {
	var over <-chan time.Time
	if d < forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-news:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// jitter makes d up to a tenth shorter, so that relays do not ask in step.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/10+1) //nolint:gosec // not a secret
}

// backoff waits longer each time.
type backoff struct {
	min, max time.Duration
	tries    int
}

func (b *backoff) next() time.Duration {
	d := grow(b.min, b.max, b.tries)
	b.tries++
	return jitter(d)
}

func (b *backoff) reset() { b.tries = 0 }

// grow doubles from least to most.
func grow(least, most time.Duration, doublings int) time.Duration {
	return min(least<<min(doublings, 20), most)
}
