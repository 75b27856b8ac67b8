package outbox

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

const (
	minStoreBackoff, maxStoreBackoff   = 100 * time.Millisecond, 5 * time.Second
	minBrokerBackoff, maxBrokerBackoff = 200 * time.Millisecond, 5 * time.Second
	minRowBackoff, maxRowBackoff       = time.Second, 30 * time.Second
)

// storeTimeout bounds each call of a store except Hold, which has a shorter limit.
const storeTimeout = 10 * time.Second

const forever = time.Duration(math.MaxInt64)

// pause waits for d or for a value from news. The result is false if ctx has ended.
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

// jitter makes d shorter by up to a tenth, so that relays do not query the database in step.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/10+1) //nolint:gosec // not a secret
}

// backoff grows with each try from min to max.
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

// grow doubles least for each of doublings, up to most.
func grow(least, most time.Duration, doublings int) time.Duration {
	return min(least<<min(doublings, 20), most)
}
