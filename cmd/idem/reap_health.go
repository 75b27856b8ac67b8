package main

import (
	"errors"
	"fmt"
	"sync"
)

// reapHealth is the readiness of idem reap --watch: the result of the last run. A run that found
// another reaper at work has no error.
type reapHealth struct {
	mu   sync.Mutex
	last error
}

var errNoRun = errors.New("the first run has not ended")

func (h *reapHealth) note(err error) {
	if err != nil {
		err = fmt.Errorf("the last run failed: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = err
}

func (h *reapHealth) ready() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}
