package ops

import (
	"sync"
	"time"
)

// deadLetterWatch has the time since which no record was written to the dead-letter topics, as far
// as the page was open.
type deadLetterWatch struct {
	mu    sync.Mutex
	known int64
	grew  time.Time
}

// quiet notes the sum of the end offsets and returns for how long it was the same. New dead letters
// raise the sum, and a purge leaves it unchanged. After a topic was made anew, the sum is lower, and
// there may be new dead letters too.
func (w *deadLetterWatch) quiet(ends int64, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ends != w.known || w.grew.IsZero() {
		w.grew = now
	}
	w.known = ends
	return now.Sub(w.grew)
}
