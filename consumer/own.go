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

// ownProducer connects when it is first needed. A group and a producer do not share a client: a letter would wait behind
// fetches.
type ownProducer struct {
	brokers []string
	config  *sarama.Config

	mu       sync.Mutex
	client   sarama.Client
	producer *Producer
	closed   bool
}

// Produce sends with a producer that is there, or makes one.
func (o *ownProducer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	p, err := o.get()
	if err != nil {
		return err
	}
	return p.Produce(ctx, msgs...)
}

// warm connects ahead of the first letter.
func (o *ownProducer) warm() { _, _ = o.get() }

func (o *ownProducer) get() (*Producer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errors.New("producer is closed")
	}
	if o.producer != nil {
		return o.producer, nil
	}
	client, err := sarama.NewClient(o.brokers, o.config)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p, err := NewProducer(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	o.client, o.producer = client, p
	return p, nil
}

// close sends what is under way, for a moment, and ends.
func (o *ownProducer) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.producer == nil {
		return
	}
	cut := time.AfterFunc(leaveWait, func() { _ = o.client.Close() })
	_ = o.producer.Close() // what is not sent is not settled either
	cut.Stop()
	_ = o.client.Close()
}
