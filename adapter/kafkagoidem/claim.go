package kafkagoidem

import (
	"context"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

// place is where an assignment begins.
type place struct {
	offset    int64
	committed bool // offset is committed, or a policy has chosen it
	moved     bool // offset is to be committed: a policy has chosen it
	initial   int64
}

// claim is a partition that this member has in a generation. One goroutine fetches records, and
// runner takes them.
type claim struct {
	partition
	at      place
	s       *session
	records chan *idem.Message

	mu       sync.Mutex
	resumed  chan struct{} // nil unless paused; closed by Resume
	position int64         // the offset behind the last record of any kind
	visible  int64         // the offset behind the last record that is handled
}

// buffered is how many records wait for the assignment. Its lanes have a queue of their own.
const buffered = 64

func newClaim(s *session, p partition, at place) *claim {
	return &claim{
		partition: p, at: at, s: s, records: make(chan *idem.Message, buffered),
		position: at.offset, visible: at.offset,
	}
}

// Topic implements [runner.Claim].
func (c *claim) Topic() string { return c.partition.Topic }

// Partition implements [runner.Claim].
func (c *claim) Partition() int32 { return c.partition.Partition }

// InitialOffset implements [runner.Claim].
func (c *claim) InitialOffset() int64 {
	if c.at.committed {
		return c.at.offset
	}
	return c.at.initial
}

// HighWaterMarkOffset implements [runner.Claim].
func (c *claim) HighWaterMarkOffset() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position
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
		resumed, at := c.resumed, c.position
		c.mu.Unlock()
		if resumed == nil {
			return at, ctx.Err() == nil
		}
		select {
		case <-resumed:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// troubleAfter is how many fetches of a partition fail before the log says so. Leaders move.
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
		found, err := c.s.m.r.offsets.fetch(ctx, c.partition, from)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if back.Tries > 0 {
				c.s.m.r.retry.Over()
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
		m.leave(&comeBack{err})
		return false
	case isAny(err, kafka.UnknownTopicOrPartition), classify(err) == runner.DeniedTopic:
		m.r.topics.Suspect() // the other topics go on
	}
	if end := m.r.retry.Fatal(err); end != nil {
		m.r.group.Fail(end)
		m.leave(end)
		return false
	}
	if tries >= troubleAfter {
		m.r.retry.Begin(err)
	}
	return true
}

// add passes records on. The assignment always reads, and pauses the fetching if it has no room
// (K-14).
func (c *claim) add(ctx context.Context, found answer) {
	c.mu.Lock()
	c.position = max(c.position, found.next)
	c.visible = max(c.visible, found.visible)
	c.mu.Unlock()
	for _, m := range found.messages {
		select {
		case c.records <- m:
		case <-ctx.Done():
			return
		}
	}
}

// look returns what lies behind an offset, as far as records were fetched. ok is false if a visible
// record lies there. newest is the end of the log.
func (c *claim) look(offset, newest int64) (found runner.Look, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.visible > offset {
		return runner.Look{}, false
	}
	clear := max(offset, c.position)
	return runner.Look{Clear: clear, End: clear >= newest}, true
}

// learn tells a tail that nothing visible lies between the last visible record and the position: the
// offsets of markers there are committed too (K-17).
func (c *claim) learn(t *runner.Tail) {
	c.mu.Lock()
	visible, markers := c.visible, c.position > c.visible
	c.mu.Unlock()
	if !markers {
		return
	}
	now := time.Now()
	offset, _ := t.Ask(visible, now)
	const unknown = 1<<63 - 1 // the end of the log is not asked for here
	if found, ok := c.look(offset, unknown); ok {
		t.Learn(now, offset, found)
	}
}

// ends is a [runner.EndAsker]: it compares the positions of claims with the ends of the logs.
type ends struct{ offsets runner.Offsets }

// Ask implements [runner.EndAsker].
func (e ends) Ask(questions []runner.EndQuestion, stop <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.EndsWait)
	defer cancel()
	asked := time.Now()
	partitions := make(map[string][]int32)
	wanted := make(map[partition]int64)
	for _, q := range questions {
		if offset, ok := q.Tail.Ask(q.Next, asked); ok {
			wanted[q.TopicPartition] = offset
			partitions[q.Topic] = append(partitions[q.Topic], q.Partition)
		}
	}
	if len(wanted) == 0 {
		return
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-stop:
			cancel()
		case <-ended:
		}
	}()
	newest, err := e.offsets.Newest(ctx, partitions)
	close(ended)
	<-done
	if err != nil {
		return
	}
	for _, q := range questions {
		offset, isWanted := wanted[q.TopicPartition]
		c, known := q.Claim.(*claim)
		if !isWanted || !known {
			continue
		}
		found, ok := c.look(offset, newest[q.TopicPartition])
		if ok {
			q.Tail.Learn(asked, offset, found)
		}
		if !ok || !found.End {
			q.Tail.Forget()
		}
	}
}
