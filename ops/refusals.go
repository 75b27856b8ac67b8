package ops

import (
	"sync"
	"time"
)

// This file limits the refusals in the log.

// maxRefusals limits the written refusals per minute, separately for strangers and for persons. A
// stranger must not fill the log.
const maxRefusals = 60

// refusals counts the refusals of the present minute.
type refusals struct {
	mu      sync.Mutex
	since   time.Time
	written int
	left    int // out, since the last one that was written
}

// take reports whether one more refusal is to be written, and the number that was left out before.
func (r *refusals) take(now time.Time) (left int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) >= time.Minute {
		r.since, r.written = now, 0
	}
	if r.written >= maxRefusals {
		r.left++
		return 0, false
	}
	r.written++
	left, r.left = r.left, 0
	return left, true
}
