package runner

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/observe"
)

// commitHealth pairs commits with errors, which some clients return later on a channel. Observers
// get each commit, and the log each change between success and failure.
type commitHealth struct {
	log       *slog.Logger
	text      func(error) string
	group     string
	observers []observe.CommitObserver

	mu      sync.Mutex
	open    bool      // a commit was not reported yet
	ended   time.Time // zero while the commit runs
	current observe.CommitEvent
	failing bool
	failed  time.Time // the last failure
}

// calm is how long commits must succeed before the log calls them working again. The errors may
// include those of fetches, and lack that of a commit to a broker that is down.
const calm = 5 * time.Second

// errorDelay is how much later than the commit an error may come, through two channels of a client.
const errorDelay = 100 * time.Millisecond

// note takes an error that may be that of the open commit. A client may report errors of fetches
// and heartbeats in the same way.
func (c *commitHealth) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := !c.ended.IsZero() && time.Since(c.ended) > errorDelay
	if c.open && !late && c.current.Err == nil {
		c.current.Err = err
	}
}

// begin reports the commit before and opens the next.
func (c *commitHealth) begin(moved int) {
	c.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.ended = true, time.Time{}
	c.current = observe.CommitEvent{Group: c.group, Partitions: moved}
}

func (c *commitHealth) end(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current.Took, c.ended = took, time.Now()
}

// settle reports the open commit. A commit without new offsets is reported only with an error.
func (c *commitHealth) settle() {
	c.mu.Lock()
	e, open := c.current, c.open
	c.open, c.current = false, observe.CommitEvent{}
	report := open && (e.Partitions > 0 || e.Err != nil)
	if report && e.Err != nil {
		c.failed = time.Now()
	}
	changed := report && c.failing != (e.Err != nil) &&
		(e.Err != nil || time.Since(c.failed) > calm)
	if changed {
		c.failing = e.Err != nil
	}
	c.mu.Unlock()
	if !report {
		return
	}
	switch {
	case changed && e.Err != nil:
		c.log.Warn("committing offsets fails, will go on trying", "error", c.text(e.Err))
	case changed:
		c.log.Info("committing offsets works again")
	}
	c.observe(e)
}

// observe passes a commit to the observers.
func (c *commitHealth) observe(e observe.CommitEvent) {
	for _, o := range c.observers {
		o.ObserveCommit(context.Background(), e)
	}
}
