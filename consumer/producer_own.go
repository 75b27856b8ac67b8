package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/internal/conns"
)

// flushWait bounds how long ownProducer may send after the end of all handlers.
const flushWait = time.Second

// ownProducer connects with the first message. The group has another client, because a dead letter
// would wait behind fetches there.
type ownProducer struct {
	brokers []string
	config  *sarama.Config
	// explain adds the remedy to an error; may be nil.
	explain func(err error, msgs []*idem.Message) error

	conns    *conns.Conns // of all clients, one after the other
	mu       sync.Mutex
	client   sarama.Client
	producer *Producer
	closed   bool
}

func newOwnProducer(brokers []string, config *sarama.Config) *ownProducer {
	if config == nil { // New returns an error
		return &ownProducer{}
	}
	own := conns.New(config)
	return &ownProducer{brokers: brokers, config: own.Config(config), conns: own}
}

// Produce connects if there is no connection yet, and sends.
func (o *ownProducer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	p, err := o.connected()
	if err != nil {
		return err
	}
	err = p.Produce(ctx, msgs...)
	if err != nil && o.explain != nil {
		err = o.explain(err, msgs)
	}
	return err
}

// warm connects ahead of the first dead letter, while no handler runs. The end of ctx cuts the
// connections for good.
func (o *ownProducer) warm(ctx context.Context) {
	defer context.AfterFunc(ctx, o.conns.Cut)()
	_, _ = o.connected()
}

func (o *ownProducer) connected() (*Producer, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errors.New("producer is closed")
	}
	if o.producer != nil {
		return o.producer, nil
	}
	client, err := bootstrap.Client(context.Background(), o.brokers, o.config)
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

// close sends the messages in flight for at most flushWait, and ends.
func (o *ownProducer) close() {
	cut := time.AfterFunc(flushWait, o.conns.Cut)
	defer cut.Stop()
	o.mu.Lock() // held by a call that connects
	defer o.mu.Unlock()
	o.closed = true
	if o.producer == nil {
		return
	}
	_ = o.producer.Close() // an event whose dead letter was not sent is not settled
	o.conns.Cut()
	_ = o.client.Close()
}
