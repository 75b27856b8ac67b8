package consumer

import (
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// commitHealth pairs commits with the errors that come from elsewhere and later. It tells observers of each commit and
// the log of each change between working and failing.
type commitHealth struct {
	log *slog.Logger

	mu      sync.Mutex
	open    bool      // there is a commit that was not told
	ended   time.Time // zero while it is under way
	current idem.CommitEvent
	failing bool
	failed  time.Time // the last time
}

// calm is how long commits must go well before they are said to work again: sarama tells errors of fetches on the same
// way, and of a commit to a broker that is away it may tell nothing.
const calm = 5 * time.Second

// errorDelay is how much later than the commit its error may come: it goes through two channels of sarama.
const errorDelay = 100 * time.Millisecond

// note takes an error if it may be one of the open commit: sarama tells errors of fetches and heartbeats on the same way.
func (c *commitHealth) note(err error) {
	if isAny(err, sarama.ErrOffsetOutOfRange, sarama.ErrConsumerRetriesExhausted) { // of fetches only
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if late := !c.ended.IsZero() && time.Since(c.ended) > errorDelay; c.open && !late && c.current.Err == nil {
		c.current.Err = err
	}
}

// begin tells of the commit before and opens the next.
func (c *commitHealth) begin(h *GroupHandler, moved int) {
	c.settle(h)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.ended = true, time.Time{}
	c.current = idem.CommitEvent{Group: h.cfg.Group, Partitions: moved}
}

func (c *commitHealth) end(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current.Took, c.ended = took, time.Now()
}

// settle tells of the commit that is open. One without anything to commit is told only if there was an error.
func (c *commitHealth) settle(h *GroupHandler) {
	c.mu.Lock()
	e, open := c.current, c.open
	c.open, c.current = false, idem.CommitEvent{}
	tell := open && (e.Partitions > 0 || e.Err != nil)
	if tell && e.Err != nil {
		c.failed = time.Now()
	}
	changed := tell && c.failing != (e.Err != nil) && (e.Err != nil || time.Since(c.failed) > calm)
	if changed {
		c.failing = e.Err != nil
	}
	c.mu.Unlock()
	if !tell {
		return
	}
	switch {
	case changed && e.Err != nil:
		c.log.Warn("committing offsets fails, will go on trying", "error", h.cfg.errorText(e.Err))
	case changed:
		c.log.Info("committing offsets works again")
	}
	h.observeCommit(e)
}
