package idemtest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// HandledOnce fails the test unless each of the events was handled, and by one delivery only. Runs
// that failed do not count. If several events share an ID, each of them must be handled once.
func (c *Consumer) HandledOnce(ids ...string) {
	c.t.Helper()
	if len(ids) == 0 {
		c.t.Fatal("idemtest: HandledOnce: pass the IDs of the events")
	}
	for _, id := range ids {
		events := c.find(id)
		if len(events) == 0 {
			c.t.Errorf("idemtest: the event %q was not handled, since its record waits", id)
		}
		for _, e := range ordered(events) {
			if n := events[e]; n.handled != 1 {
				c.t.Errorf("idemtest: the event %s was handled %d times, want 1 (%d runs, %d of them without "+
					"an error, %d duplicates)", e.name(id), n.handled, n.runs, n.success, n.copies)
			}
		}
	}
}

// name describes an event that was found by an ID.
func (s subject) name(id string) string {
	text := strconv.Quote(id)
	if s.key.Type != "" {
		text += fmt.Sprintf(" of type %q", s.key.Type)
	}
	if s.key.Tenant != "" {
		text += fmt.Sprintf(" of tenant %q", s.key.Tenant)
	}
	if s.key.ID != "" && s.key.ID != id {
		text += fmt.Sprintf(", which the router reads as %q,", s.key.ID)
	}
	return text
}

// find returns the numbers of the events with an ID. An unknown ID ends the test. But as long as a
// record waits with an unknown identity, each ID may be that of this record, and find returns no
// event.
func (c *Consumer) find(id string) map[subject]counts {
	c.t.Helper()
	events := c.seen.find(id)
	if len(events) > 0 {
		return events
	}
	for _, w := range c.Waiting() {
		if id != "" && w.ID == "" {
			return nil
		}
	}
	c.unknown(id)
	return nil
}

// sum adds up a number of the events with an ID.
func (c *Consumer) sum(id string, number func(counts) int) (n int) {
	c.t.Helper()
	for _, e := range c.find(id) {
		n += number(e)
	}
	return n
}

// Handled returns how many deliveries of an event were handled.
func (c *Consumer) Handled(id string) int {
	c.t.Helper()
	return c.sum(id, func(n counts) int { return n.handled })
}

// Runs returns how often a handler ran for an event, with and without an error.
func (c *Consumer) Runs(id string) int {
	c.t.Helper()
	return c.sum(id, func(n counts) int { return n.runs })
}

// Duplicates returns how many deliveries of an event were skipped as duplicates.
func (c *Consumer) Duplicates(id string) int {
	c.t.Helper()
	return c.sum(id, func(n counts) int { return n.copies })
}

// Conflicts returns how many deliveries of an event had another content.
func (c *Consumer) Conflicts(id string) int {
	c.t.Helper()
	return c.sum(id, func(n counts) int { return n.conflicts })
}

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
			all = append(all, Waiting{ID: c.seen.id(original(m)), Message: m, Err: c.stuck[at]})
		}
	}
	return all
}

// Waiting is a record that is not settled.
type Waiting struct {
	// ID is the Record.ID. For a record without one it is the ID of the event, and empty until the
	// processor has read it.
	ID      string
	Message *idem.Message
	// Err is why the first record of the partition waits, as [idem.Processor.HandleBatch] returned
	// it.
	Err error
}

// String names the place of the record and the reason why it waits.
func (w Waiting) String() string {
	var b strings.Builder
	b.WriteString(cmp.Or(w.ID, "record without an ID") + " in " + w.Message.Topic)
	if w.Err != nil {
		b.WriteString(": " + w.Err.Error())
	}
	return b.String()
}
