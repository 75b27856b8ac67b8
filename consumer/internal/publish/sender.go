package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/sendbudget"
)

// sender is the shared part of all calls: sarama's producer, and the state of the messages in
// flight.
type sender struct {
	async  sarama.AsyncProducer
	client sarama.Client
	max    int // size of the largest message, in bytes

	results sync.WaitGroup
	budget  *sendbudget.Budget
	topics  *topicLookup
	away    *awayPartitions // nil: each message is tried for as long as sarama tries
	resends *resends

	// mu is held shared while a message goes to async, which may take no message for a while. ending
	// is closed first, so that a producer is closed at once.
	mu     sync.RWMutex
	closed bool
	ending chan struct{}
	once   sync.Once // closes ending
}

// origin travels with a message through sarama and back.
type origin struct {
	index   int    // of the message in its call
	weight  int    // in the budget
	sent    uint64 // the moment before sarama got the message
	results chan<- result
	probe   *partition // the partition that the message tests; nil: the message is no probe
}

// result is the outcome of one message.
type result struct {
	index int
	err   error
}

// run reads sarama's results until async is closed.
func (s *sender) run() {
	s.ending = make(chan struct{})
	s.results.Go(func() {
		for m := range s.async.Successes() {
			s.settle(m, nil)
		}
	})
	s.results.Go(func() {
		for e := range s.async.Errors() {
			s.settle(e.Msg, e.Err)
		}
	})
}

// settle gives the result of a message to the call. The message itself carries the index (O-08).
func (s *sender) settle(m *sarama.ProducerMessage, err error) {
	o := m.Metadata.(*origin)
	s.budget.Give(o.weight)
	if s.away != nil {
		s.away.note(m, s.topics.partitions(m.Topic), err, o.probe)
	}
	o.results <- result{o.index, s.verdict(m, err)}
}

// verdict returns the error of a message. A refusal says that the message is not in the log only
// if the batch was sent once. After an attempt without an answer, the broker may have appended the
// batch, and refuses the copy. The error has only the text of the refusal then.
func (s *sender) verdict(m *sarama.ProducerMessage, err error) error {
	saysNo := err != nil && (isBatchVerdict(err) || isAny(err, sarama.ErrTopicAuthorizationFailed))
	if !saysNo || !s.resends.since(m.Metadata.(*origin).sent, partition{m.Topic, m.Partition}) {
		return err
	}
	return fmt.Errorf("may be in the log: refused (%s) after an attempt: %w",
		idem.ErrorText(err), errNoAnswer)
}

// enqueue gives a message to sarama.
func (s *sender) enqueue(ctx context.Context, m *idem.Message, o *origin) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	msg := ToSarama(m)
	o.sent, msg.Metadata = s.resends.now(), o
	select {
	case s.async.Input() <- msg:
		return nil
	case <-s.ending:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start runs f in a goroutine that Close waits for. The result is false if the producer is closed.
func (s *sender) start(f func()) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return false
	}
	s.results.Go(f)
	return true
}

// ask looks topics up. Those of writable get their partitions with a leader as well. The result is
// false if the producer is closed.
func (s *sender) ask(topics, writable map[string][]int) (<-chan topicAnswer, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, false
	}
	answers := make(chan topicAnswer, len(topics)) // an answer never waits
	for topic := range topics {
		_, also := writable[topic]
		s.topics.lookUp(question{topic, also}, answers)
	}
	return answers, true
}

// end refuses new messages, and ends the waits of messages that sarama has not taken. The first
// call returns true.
func (s *sender) end() (first bool) {
	s.once.Do(func() {
		close(s.ending)
		first = true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return first
}

// unfit returns an error for a message that no broker takes. sarama would fail all messages of the
// request with it.
func (s *sender) unfit(m *idem.Message) error {
	if isTooOld(m.Time) {
		return errTooOld
	}
	return s.tooLarge(m)
}

// errTooOld is the error of a message with a time that a record cannot have.
var errTooOld = fmt.Errorf("%w: its time is before 1970", idem.ErrRefused)

func isTooOld(t time.Time) bool { return !t.IsZero() && t.Before(time.Unix(0, 0)) }

// tooLarge returns an error for a message that sarama itself would refuse.
func (s *sender) tooLarge(m *idem.Message) error {
	if n := sizeOf(m); n > s.max {
		return s.tooLargeAt(n)
	}
	return nil
}

func (s *sender) tooLargeAt(size int) error {
	return fmt.Errorf("%w: %d bytes, Producer.MaxMessageBytes is %d",
		idem.ErrTooLarge, size, s.max)
}
