package idemtest

import (
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// HandledOnce fails the test unless each of the events was handled, and by one delivery only. Runs
// that failed do not count.
func (c *Consumer) HandledOnce(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		if n := c.Handled(id); n != 1 {
			c.t.Errorf("idemtest: the event %q was handled %d times, want 1 (%d runs, %d of them without "+
				"an error, %d duplicates)", id, n, c.Runs(id), c.seen.count(c.seen.success, id), c.Duplicates(id))
		}
	}
}

// Handled returns how many deliveries of an event were handled.
func (c *Consumer) Handled(id string) int { return c.seen.count(c.seen.handled, id) }

// Runs returns how often a handler ran for an event, with and without an error.
func (c *Consumer) Runs(id string) int { return c.seen.count(c.seen.runs, id) }

// Duplicates returns how many deliveries of an event were skipped as duplicates.
func (c *Consumer) Duplicates(id string) int { return c.seen.count(c.seen.copies, id) }

// Conflicts returns how many deliveries of an event had another content.
func (c *Consumer) Conflicts(id string) int { return c.seen.count(c.seen.conflict, id) }

// DeadLetters returns the dead letters of the consumer, in the order of their topics.
func (c *Consumer) DeadLetters() []*deadletter.Event {
	c.t.Helper()
	var all []*deadletter.Event
	for _, m := range c.topics.all(c.buries) {
		e, err := deadletter.Parse(m)
		if err != nil {
			c.t.Fatalf("idemtest: dead letter at offset %d of %s: %v", m.Offset, m.Topic, err)
		}
		all = append(all, e)
	}
	return all
}

// buries reports whether a topic is a dead-letter topic of a delivered topic.
func (c *Consumer) buries(topic string) bool {
	for source := range c.delivered {
		if topic == c.p.DeadLetterTopic(source) {
			return true
		}
	}
	return false
}

// Producer returns a producer that writes to topics of this test. Pass it to a relay of package
// outbox, and find the records by [Consumer.Emitted].
func (c *Consumer) Producer() idem.Producer { return &c.topics }

// Emitted returns the records of a topic that the consumer does not read, in the order of their
// offsets.
func (c *Consumer) Emitted(topic string) []*idem.Message {
	return c.topics.all(func(name string) bool { return name == topic })
}

// Committed returns the offset that the consumer commits next: the first record of the partition
// that is not settled.
func (c *Consumer) Committed(topic string, partition int32) int64 {
	c.topics.mu.Lock()
	defer c.topics.mu.Unlock()
	if p := c.topics.parts[place{topic, partition}]; p != nil {
		return int64(p.settled)
	}
	return 0
}

// Waiting returns the records that are not settled, each with the reason of its partition.
func (c *Consumer) Waiting() []Waiting {
	var all []Waiting
	for _, at := range c.topics.read(c.reads) {
		for _, m := range c.topics.open(at) {
			id, _ := c.identity(m)
			all = append(all, Waiting{ID: id, Message: m, Err: c.stuck[at]})
		}
	}
	return all
}

// Waiting is a record that is not settled.
type Waiting struct {
	ID      string
	Message *idem.Message
	// Err is why the first record of the partition waits, as [idem.Processor.HandleBatch] returned
	// it.
	Err error
}

// String names the place of the record and the reason why it waits.
func (w Waiting) String() string {
	var b strings.Builder
	b.WriteString(w.ID + " in " + w.Message.Topic)
	if w.Err != nil {
		b.WriteString(": " + w.Err.Error())
	}
	return b.String()
}
