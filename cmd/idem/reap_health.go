package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// reapHealth is the readiness of idem reap --watch: the result of the last run, and its age. A run
// that found another reaper at work has no error, unless scopes were too slow before.
type reapHealth struct {
	quiet time.Duration // the longest time without a sign of life

	mu   sync.Mutex
	last error
	sign time.Time // the end of a run, or of a batch
}

// reapSlack is how long a run may take beyond the interval until it deletes a batch or ends. Its
// statements end within 90 s each.
const reapSlack = 10 * time.Minute

var errNoRun = errors.New("the first run has not ended")

func newReapHealth(interval time.Duration) *reapHealth {
	return &reapHealth{quiet: interval + reapSlack, last: errNoRun}
}

// note is called after each run.
func (h *reapHealth) note(err error) {
	if err != nil {
		err = fmt.Errorf("the last run failed: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.sign = err, time.Now()
}

// heard is called after each batch, because a run may delete for hours.
func (h *reapHealth) heard() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sign = time.Now()
}

func (h *reapHealth) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if age := time.Since(h.sign); h.last == nil && age > h.quiet {
		return fmt.Errorf("the last run ended, or deleted a batch, %s ago",
			age.Truncate(time.Second))
	}
	return h.last
}
