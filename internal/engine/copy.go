package engine

import (
	"fmt"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/idemtype"
)

// This file reads copies in the retry topics of the group: delayed retries, and dead letters that
// are replayed. The headers of Idem mean something only in those topics (G-03, rule 6). The store
// decides which copy may run; a copy only claims to be of a position.

// copied is the history of a copy or of a deferred event.
type copied struct {
	deadletter.Event
	topic     string // topic of the copy; empty for a deferred event
	partition int32
	delay     time.Duration // of the topic
	received  time.Time
}

// wait returns how long a copy must still wait. The clock of the copy's writer may be wrong, so the
// wait ends when the delay of the topic has passed since the copy was received.
func (c *copied) wait() time.Duration {
	if c.Due.IsZero() {
		return 0
	}
	return min(time.Until(c.Due), c.delay-time.Since(c.received))
}

// open returns the record that m is a copy of, if m lies in a retry topic of the group. For any
// other message open returns m itself and nil.
func (p *Processor) open(m *idemtype.Message) (*idemtype.Message, *copied, error) {
	source, delay, ok := p.retryTopics.Source(m.Topic)
	if !ok {
		return m, nil, nil
	}
	e, err := deadletter.ParseCopy(m)
	switch {
	case err != nil:
		return m, nil, err
	case e.Group != p.cfg.Group || e.Message.Topic != source:
		return m, nil, fmt.Errorf("a copy of %s for group %s does not belong here",
			e.Message.Topic, e.Group)
	}
	return e.Message, &copied{
		Event: *e, topic: m.Topic, partition: m.Partition, delay: delay, received: received(m),
	}, nil
}

// received returns when m was received: now, if the consumer has not set the time.
func received(m *idemtype.Message) time.Time {
	if m.Received.IsZero() {
		m.Received = time.Now()
	}
	return m.Received
}

// Due returns how long m must not be handled yet, if m is a copy for a later attempt in a retry topic of the group. The wait ends at
// the latest when the delay of the topic has passed since [Message].Received. Due sets a zero Received to the present time.
//
// HandleBatch waits for that time itself. A consumer that can pause a partition should pause it instead.
func (p *Processor) Due(m *idemtype.Message) time.Duration {
	_, delay, ok := p.retryTopics.Source(m.Topic)
	if !ok || delay == 0 {
		return 0
	}
	due, ok := deadletter.Due(m)
	if !ok {
		return 0
	}
	c := copied{Event: deadletter.Event{Due: due}, delay: delay, received: received(m)}
	return max(c.wait(), 0)
}
