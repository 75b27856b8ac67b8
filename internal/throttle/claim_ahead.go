package throttle

import (
	"sync/atomic"
	"time"
)

// ClaimAhead estimates the duration of one run of a handler, and so how many events may be
// claimed at once. After a crash, other workers wait for the leases of events that were claimed
// and not begun.
type ClaimAhead struct{ average atomic.Int64 } // nanoseconds; zero: not known

const (
	aheadTime  = time.Second // of work that may be claimed at once
	firstAhead = 16          // events, as long as the time of a run is not known
)

// Note takes one run into account.
func (c *ClaimAhead) Note(took time.Duration) {
	old := c.average.Load()
	if old == 0 {
		c.average.Store(max(1, int64(took)))
		return
	}
	// An estimate: two lanes may overwrite each other.
	c.average.Store(max(1, old+(int64(took)-old)/8))
}

// Events is how many events may be claimed at once, at most n.
func (c *ClaimAhead) Events(n int) int {
	average := c.average.Load()
	if average == 0 {
		return min(n, firstAhead)
	}
	return int(max(1, min(int64(n), int64(aheadTime)/average)))
}
