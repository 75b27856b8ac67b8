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

// ownProducer connects when it is first needed. A group and a producer do not share a client: a dead letter would wait behind
// fetches.
type ownProducer struct {
	brokers []string
	config  *sarama.Config
	explain func(err error, msgs []*idem.Message) error // says what mends an error; may be nil

	conns    *connections // of all clients, one after the other
	mu       sync.Mutex
	client   sarama.Client
	producer *Producer
	closed   bool
}

func newOwnProducer(brokers []string, config *sarama.Config) *ownProducer {
	if config == nil { // New returns an error
		return &ownProducer{}
	}
	conns := newConnections(config)
	return &ownProducer{brokers: brokers, config: conns.config(config), conns: conns}
}

// Produce sends with a producer that is there, or makes one.
func (o *ownProducer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	p, err := o.get()
	if err != nil {
		return err
	}
	err = p.Produce(ctx, msgs...)
	if err != nil && o.explain != nil {
		err = o.explain(err, msgs)
	}
	return err
}

// warm connects ahead of the first dead letter, when no handler runs: the end of ctx cuts the connections for good.
func (o *ownProducer) warm(ctx context.Context) {
	defer context.AfterFunc(ctx, o.conns.cut)()
	_, _ = o.get()
}

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
	cut := time.AfterFunc(flushWait, o.conns.cut)
	defer cut.Stop()
	o.mu.Lock() // whoever has it may be connecting
	defer o.mu.Unlock()
	o.closed = true
	if o.producer == nil {
		return
	}
	_ = o.producer.Close() // what is not sent is not settled either
	o.conns.cut()
	_ = o.client.Close()
}
