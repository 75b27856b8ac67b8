package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// Producer publishes on a sarama client. It is an [idem.Producer], and what a relay of an outbox publishes with. Create it
// with [OpenProducer], or with [NewProducer] on a client that is there. Safe for concurrent use.
type Producer struct {
	async  sarama.AsyncProducer
	client sarama.Client
	conns  *connections // of OpenProducer: Close closes the client; nil: it is the caller's
	max    int

	patience time.Duration // of a ProduceEach; zero: only its context ends it

	results sync.WaitGroup
	room    *room
	topics  topicAsks
	away    *awayParts // nil: nothing is noted, each message is tried for as long as sarama does

	// closing is held shared by whoever gives messages to async.
	closing sync.RWMutex
	closed  bool
}

var _ idem.Producer = (*Producer)(nil)

// NewProducer returns a producer on a client, such as one for dead letters. The client must be set up so that nothing is
// lost: it is refused without acks from all replicas (Producer.RequiredAcks) and without Producer.Return.Successes and
// Errors. [DefaultSaramaConfig] is fit. The client stays the caller's to close, after [Producer.Close].
// An error that matches [ErrUnauthorized] says that the user has Write on no topic.
func NewProducer(client sarama.Client) (*Producer, error) {
	if client == nil {
		return nil, errors.New("client is nil")
	}
	if err := errors.Join(checkProducer(client.Config())...); err != nil {
		return nil, err
	}
	async, err := sarama.NewAsyncProducerFromClient(client)
	if errors.Is(err, sarama.ErrClusterAuthorizationFailed) { // the answer to whom Write is denied on all topics
		return nil, fmt.Errorf("producer: %w: no right to write to any topic: %w", ErrUnauthorized, err)
	}
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p := &Producer{
		async: async, client: client, max: client.Config().Producer.MaxMessageBytes, room: newRoom(maxUnderWay),
		topics: topicAsks{client: client, asked: make(map[string][]chan<- topicAnswer)},
	}
	p.results.Go(func() {
		for m := range async.Successes() {
			p.settle(m, nil)
		}
	})
	p.results.Go(func() {
		for e := range async.Errors() {
			p.settle(e.Msg, e.Err)
		}
	})
	return p, nil
}

// settle tells the call that a message belongs to what became of it. Which message it is says the message itself (O-08).
func (p *Producer) settle(m *sarama.ProducerMessage, err error) {
	f := m.Metadata.(*fate)
	p.room.give(f.weight)
	if p.away != nil {
		p.away.note(m, err, f.probe)
	}
	f.results <- result{f.index, err}
}

// Produce returns nil when all messages are acknowledged by all in-sync replicas. It returns an error that matches
// [idem.ErrTooLarge] if one will never be taken for its size, [idem.ErrRefused] if not as it is, [idem.ErrNoTopic] if not
// into its topic, and any other error if it is not known what became of them: they may or may not be in the log, and
// sending them again may double them. With ErrTooLarge that says sarama's own limit, none was sent. It waits no longer than
// ctx; sarama may go on trying.
func (p *Producer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	for _, m := range msgs {
		if err := p.tooLarge(m); err != nil {
			return err
		}
	}
	return errors.Join(p.ProduceEach(ctx, msgs)...)
}

// Close sends what is under way and ends. Calls that wait get an error for each message that sarama gives up. With
// [OpenProducer] the connections are cut after five seconds, which ends it at once if no broker answers, and the client is closed; with
// [NewProducer] it takes as long as sarama retries, and the client is left open. It always returns nil.
func (p *Producer) Close() error {
	p.closing.Lock()
	first := !p.closed
	p.closed = true
	p.closing.Unlock()
	if first {
		p.async.AsyncClose()
		if p.conns != nil {
			defer p.closeClient()()
		}
	}
	p.results.Wait()
	if p.conns == nil {
		p.topics.running.Wait()
	}
	return nil
}

// tooLarge finds what sarama would refuse itself.
func (p *Producer) tooLarge(m *idem.Message) error {
	if n := sizeOf(m); n > p.max {
		return fmt.Errorf("%w: %d bytes, Producer.MaxMessageBytes is %d", idem.ErrTooLarge, n, p.max)
	}
	return nil
}

// sizeOf is how sarama measures a message.
func sizeOf(m *idem.Message) int {
	const recordBatchV2 = 2
	return toSarama(m).ByteSize(recordBatchV2)
}

// enqueue gives a message to sarama.
func (p *Producer) enqueue(ctx context.Context, m *idem.Message, f *fate) error {
	p.closing.RLock()
	defer p.closing.RUnlock()
	if p.closed {
		return errProducerClosed
	}
	msg := toSarama(m)
	msg.Metadata = f
	select {
	case p.async.Input() <- msg:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errProducerClosed = errors.New("producer is closed")

// isRefused reports whether the broker will not take a record as it is, however often it is asked.
func isRefused(err error) bool {
	return isAny(err, sarama.ErrInvalidTimestamp, sarama.ErrInvalidRecord, sarama.ErrPolicyViolation)
}

func isTooLarge(err error) bool {
	return isAny(err, sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge)
}

// isNoTopic reports whether a topic is missing, has no such name, or must not be written to.
func isNoTopic(err error) bool {
	return isAny(err, sarama.ErrUnknownTopicOrPartition, sarama.ErrTopicAuthorizationFailed, sarama.ErrInvalidTopic)
}
