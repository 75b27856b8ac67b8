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

	conns      *conns.Conns // of all clients, one after the other
	connecting sync.WaitGroup
	mu         sync.Mutex
	attempt    *connectAttempt // under way; nil: none
	client     sarama.Client
	producer   *Producer
	closed     bool
}

// connectAttempt is a connect that all calls wait for.
type connectAttempt struct {
	ended    chan struct{} // closed when producer and err are set
	producer *Producer
	err      error
}

func newOwnProducer(brokers []string, config *sarama.Config) *ownProducer {
	if config == nil { // New returns an error
		return &ownProducer{}
	}
	own := conns.New(config)
	return &ownProducer{brokers: brokers, config: own.Config(config), conns: own}
}

// Produce connects if there is no connection yet, and sends. A connect goes on after the end of ctx,
// and serves the next call.
func (o *ownProducer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	p, err := o.connected(ctx)
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
	_, _ = o.connected(ctx)
}

// connected returns the producer. It waits for a connect until ctx ends.
func (o *ownProducer) connected(ctx context.Context) (*Producer, error) {
	o.mu.Lock()
	a := o.attempt
	switch {
	case o.closed:
		o.mu.Unlock()
		return nil, errors.New("producer is closed")
	case o.producer != nil:
		defer o.mu.Unlock()
		return o.producer, nil
	case a == nil:
		a = &connectAttempt{ended: make(chan struct{})}
		o.attempt = a
		o.connecting.Go(func() { o.connect(a) })
	}
	o.mu.Unlock()
	select {
	case <-a.ended:
		return a.producer, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("producer connects: %w", context.Cause(ctx))
	}
}

// connect carries out a connect.
func (o *ownProducer) connect(a *connectAttempt) {
	client, p, err := o.dial()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempt, o.client, o.producer = nil, client, p
	a.producer, a.err = p, err
	close(a.ended)
}

func (o *ownProducer) dial() (sarama.Client, *Producer, error) {
	client, err := bootstrap.Client(context.Background(), o.brokers, o.config)
	if err != nil {
		return nil, nil, fmt.Errorf("producer: %w", err)
	}
	p, err := NewProducer(client)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return client, p, nil
}

// close sends the messages in flight for at most flushWait, and ends.
func (o *ownProducer) close() {
	cut := time.AfterFunc(flushWait, o.conns.Cut)
	defer cut.Stop()
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.connecting.Wait()
	if o.producer == nil {
		return
	}
	_ = o.producer.Close() // an event whose dead letter was not sent is not settled
	o.conns.Cut()
	_ = o.client.Close()
}
