package ops

import (
	"sync"
	"time"
)

// deadLetterWatch has the time since which the dead-letter topics have not grown, as far as the
// page was open.
type deadLetterWatch struct {
	mu    sync.Mutex
	known int64
	grew  time.Time
}

// quiet notes how many records there are and returns for how long there were no more.
func (w *deadLetterWatch) quiet(n int64, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > w.known || w.grew.IsZero() {
		w.grew = now
	}
	w.known = n
	return now.Sub(w.grew)
}
