package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// Producer is an [idem.Producer] on a sarama client. Create it with [NewProducer].
type Producer struct {
	async   sarama.AsyncProducer
	max     int
	results sync.WaitGroup

	// alone is held exclusively by a message that was refused for its size while it shared a batch with others.
	alone sync.RWMutex
	// closing is held shared by whoever gives messages to async.
	closing sync.RWMutex
	closed  bool
}

var _ idem.Producer = (*Producer)(nil)

// NewProducer returns a producer for dead letters. The client must be set up so that nothing is lost: it is refused
// without acks from all replicas (Producer.RequiredAcks) and without Producer.Return.Successes and Errors.
// [DefaultSaramaConfig] is fit. The client stays the caller's to close, after [Producer.Close].
func NewProducer(client sarama.Client) (*Producer, error) {
	if client == nil {
		return nil, errors.New("client is nil")
	}
	if err := errors.Join(checkProducer(client.Config())...); err != nil {
		return nil, err
	}
	async, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p := &Producer{async: async, max: client.Config().Producer.MaxMessageBytes}
	p.results.Go(func() {
		for m := range async.Successes() {
			m.Metadata.(chan<- error) <- nil
		}
	})
	p.results.Go(func() {
		for e := range async.Errors() {
			e.Msg.Metadata.(chan<- error) <- e.Err
		}
	})
	return p, nil
}

// Produce returns nil when all messages are acknowledged by all in-sync replicas. It returns an error that matches
// [idem.ErrTooLarge] if one will never be taken for its size, [idem.ErrRefused] if not as it is, and any other error if it is not known what became of them:
// they may or may not be in the log, and sending them again may double them. It waits no longer than ctx; sarama may go
// on trying.
func (p *Producer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	if err := p.tooLarge(msgs); err != nil {
		return err
	}
	p.alone.RLock()
	err := p.send(ctx, msgs)
	p.alone.RUnlock()
	if !isTooLarge(err) && !isRefused(err) {
		return err
	}
	// sarama puts what is sent at the same time into one batch, and a broker measures batches. Only a message that is too
	// large alone is too large.
	p.alone.Lock()
	defer p.alone.Unlock()
	for _, m := range msgs {
		if err := p.send(ctx, []*idem.Message{m}); err != nil {
			if isTooLarge(err) {
				return fmt.Errorf("%w: %w", idem.ErrTooLarge, err)
			}
			if isRefused(err) {
				return fmt.Errorf("%w: %w", idem.ErrRefused, err)
			}
			return err
		}
	}
	return nil
}

// Close sends what is under way and ends. The client is left open.
func (p *Producer) Close() error {
	p.closing.Lock()
	first := !p.closed
	p.closed = true
	p.closing.Unlock()
	if first {
		p.async.AsyncClose()
	}
	p.results.Wait()
	return nil
}

// tooLarge finds what sarama would refuse itself.
func (p *Producer) tooLarge(msgs []*idem.Message) error {
	const recordBatchV2 = 2
	for _, m := range msgs {
		if n := toSarama(m).ByteSize(recordBatchV2); n > p.max {
			return fmt.Errorf("%w: %d bytes, Producer.MaxMessageBytes is %d", idem.ErrTooLarge, n, p.max)
		}
	}
	return nil
}

// send gives msgs to sarama and waits for their results, or for ctx.
func (p *Producer) send(ctx context.Context, msgs []*idem.Message) error {
	results := make(chan error, len(msgs)) // nobody who sends a result ever waits
	if err := p.enqueue(ctx, msgs, results); err != nil {
		return err
	}
	var errs []error
	for range msgs {
		select {
		case err := <-results:
			if err != nil {
				errs = append(errs, err)
			}
		case <-ctx.Done():
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	return errors.Join(errs...)
}

func (p *Producer) enqueue(ctx context.Context, msgs []*idem.Message, results chan<- error) error {
	p.closing.RLock()
	defer p.closing.RUnlock()
	if p.closed {
		return errors.New("producer is closed")
	}
	for _, m := range msgs {
		msg := toSarama(m)
		msg.Metadata = results
		select {
		case p.async.Input() <- msg:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// isRefused reports whether the broker will not take a record as it is, however often it is asked.
func isRefused(err error) bool {
	return isAny(err, sarama.ErrInvalidTimestamp, sarama.ErrInvalidRecord, sarama.ErrPolicyViolation)
}

func isTooLarge(err error) bool {
	return isAny(err, sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge)
}
