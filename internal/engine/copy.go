package engine

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/idemtype"
)

// copied is the history of a copy or of a deferred event.
type copied struct {
	deadletter.Event
	topic     string // topic of the copy; empty for a deferred event
	partition int32
	delay     time.Duration // delay of the topic
	received  time.Time
}

// wait returns how long a copy must still wait. The clock of the copy's writer may be wrong. So the
// wait ends at the latest when the delay of the topic has passed since the receipt of the copy.
func (c *copied) wait() time.Duration {
	if c.Due.IsZero() {
		return 0
	}
	return min(time.Until(c.Due), c.delay-time.Since(c.received))
}

// copies reads the copies of one group.
type copies struct {
	group  string
	topics deadletter.RetryTopics
}

// open returns the record that m is a copy of, if m lies in a retry topic of the group. For any
// other message open returns m itself and nil.
func (c *copies) open(m *idemtype.Message) (*idemtype.Message, *copied, error) {
	source, delay, ok := c.topics.Source(m.Topic)
	if !ok {
		return m, nil, nil
	}
	e, err := deadletter.ParseCopy(m)
	switch {
	case err != nil:
		return m, nil, err
	case e.Group != c.group || e.Message.Topic != source:
		return m, nil, fmt.Errorf("a copy of %s for group %s does not belong here",
			e.Message.Topic, e.Group)
	}
	return e.Message, &copied{
		Event: *e, topic: m.Topic, partition: m.Partition, delay: delay, received: received(m),
	}, nil
}

// due returns how long m must still wait. due sets a zero Received of a copy.
func (c *copies) due(m *idemtype.Message) time.Duration {
	_, delay, ok := c.topics.Source(m.Topic)
	if !ok || delay == 0 {
		return 0
	}
	due, ok := deadletter.Due(m)
	if !ok {
		return 0
	}
	waiting := copied{Event: deadletter.Event{Due: due}, delay: delay, received: received(m)}
	return max(waiting.wait(), 0)
}

// received returns when m was received: now, if the consumer has not set the time.
func received(m *idemtype.Message) time.Time {
	if m.Received.IsZero() {
		m.Received = time.Now()
	}
	return m.Received
}
