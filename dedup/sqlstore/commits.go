package sqlstore

import (
	"database/sql"
	"fmt"
	"sync"
	"time"
)

// commits are the COMMITs of a store that go on after their calls have returned (P-18). The zero
// value is ready. Safe for concurrent use.
type commits struct {
	mu      sync.Mutex
	running int
	none    chan struct{} // closed when running falls to 0
}

// run commits in a goroutine of its own, and calls then.
func (c *commits) run(tx *sql.Tx, then func()) <-chan error {
	done := make(chan error, 1)
	c.begin()
	go func() {
		defer c.end()
		defer then()
		done <- tx.Commit()
	}()
	return done
}

// after calls fn in a goroutine of its own when a COMMIT has ended.
func (c *commits) after(done <-chan error, fn func()) {
	c.begin()
	go func() {
		defer c.end()
		<-done //nolint:errcheck // the caller has not waited for it
		fn()
	}()
}

func (c *commits) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == 0 {
		c.none = make(chan struct{})
	}
	c.running++
}

func (c *commits) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running--; c.running == 0 {
		close(c.none)
	}
}

// wait waits until all COMMITs have ended, for at most limit.
func (c *commits) wait(limit time.Duration) error {
	c.mu.Lock()
	none := c.none
	c.mu.Unlock()
	if none == nil {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-none:
		return nil
	case <-timer.C:
		return fmt.Errorf("the server has not answered a COMMIT in %s; its connection stays open",
			limit)
	}
}
