package kafkagoidem

import (
	"context"
	"sync"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

// claim is a partition that this member has in a generation. One goroutine fetches records, and
// runner takes them.
type claim struct {
	*runner.Position
	s       *session
	records chan *idem.Message

	mu      sync.Mutex
	resumed chan struct{} // nil unless paused; closed by Resume
}

// buffered is how many records wait for the assignment. Its lanes have a queue of their own.
const buffered = 64

func newClaim(s *session, p partition, at runner.Place) *claim {
	return &claim{
		Position: runner.NewPosition(p, at), s: s, records: make(chan *idem.Message, buffered),
	}
}

// Pause implements [runner.Flow].
func (c *claim) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resumed == nil {
		c.resumed = make(chan struct{})
	}
}

// Resume implements [runner.Flow].
func (c *claim) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resumed != nil {
		close(c.resumed)
		c.resumed = nil
	}
}

// IsPaused implements [runner.Flow].
func (c *claim) IsPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumed != nil
}

// next returns the offset to fetch, when the claim is not paused, and false after the end of ctx.
func (c *claim) next(ctx context.Context) (offset int64, ok bool) {
	for {
		c.mu.Lock()
		resumed := c.resumed
		c.mu.Unlock()
		if resumed == nil {
			return c.HighWaterMarkOffset(), ctx.Err() == nil
		}
		select {
		case <-resumed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// troubleAfter is how many fetches of a partition fail before the log has a line, because leaders
// move.
const troubleAfter = 3

// fetch moves records to the assignment until ctx ends, or until the partition cannot be fetched in
// this membership.
func (c *claim) fetch(ctx context.Context) {
	var back runner.Backoff
	for {
		from, ok := c.next(ctx)
		if !ok {
			return
		}
		found, err := c.s.m.r.offsets.fetch(ctx, c.At(), from)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if back.Tries > 0 {
				c.s.m.r.life.Retry.Over()
			}
			back = runner.Backoff{}
			c.add(ctx, found)
		case !c.failed(err, back.Tries) || back.Wait(ctx) != nil:
			return
		}
	}
}

// failed acts on an error of fetching. The result is true if another try may help.
func (c *claim) failed(err error, tries int) bool {
	m := c.s.m
	switch {
	case isAny(err, kafka.OffsetOutOfRange): // the next membership finds the gap (K-17)
		m.r.log.Warn("the log no longer has the next record, joining the group anew",
			"topic", c.Topic(), "partition", c.Partition())
		m.leave(&runner.ComeBack{Why: err})
		return false
	case isAny(err, kafka.UnknownTopicOrPartition), classify(err) == runner.DeniedTopic:
		m.r.life.Topics.Suspect() // the other topics go on
	}
	if end := m.r.life.Retry.Fatal(err); end != nil {
		m.r.group.Fail(end)
		m.leave(end)
		return false
	}
	if tries >= troubleAfter {
		m.r.life.Retry.Begin(err)
	}
	return true
}

// add passes records on. The assignment always reads, and pauses the fetching if it has no room
// (K-14).
func (c *claim) add(ctx context.Context, found answer) {
	c.Advance(found.next, found.visible)
	for _, m := range found.messages {
		select {
		case c.records <- m:
		case <-ctx.Done():
			return
		}
	}
}
