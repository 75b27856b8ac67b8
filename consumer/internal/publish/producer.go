package publish

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
	"github.com/idem-go/idem/internal/sendbudget"
)

const (
	// closeWait bounds how long Close waits for messages in flight before it cuts the connections.
	closeWait = 5 * time.Second
	// callWait bounds a call of ProduceEach. sarama counts attempts, and each may last as long as a
	// broker is silent.
	callWait = 30 * time.Second
	// orderedCallWait bounds a call of ProduceInOrder: more than Producer.Timeout, for which
	// brokers wait for replicas.
	orderedCallWait = 15 * time.Second
	// answerWait bounds how long Open waits for the first broker that answers, and graceWait how
	// long it waits for the others then.
	answerWait = 10 * time.Second
	graceWait  = time.Second
	// openWait bounds how long Open asks brokers that answer for the producer's ID.
	openWait = 20 * time.Second
)

// Producer publishes on a sarama client. Safe for concurrent use.
type Producer struct {
	sender
	inOrder inOrder

	conns *conns.Conns  // of Open: Close closes the client; nil: the client is the caller's
	wait  time.Duration // bounds ProduceEach; zero: only its context does
}

// New returns a producer on a client of the caller's, which stays open after Close. An error that
// matches sarama.ErrClusterAuthorizationFailed means that the user may write to no topic.
func New(client sarama.Client) (*Producer, error) {
	if client == nil {
		return nil, errors.New("client is nil")
	}
	if err := errors.Join(Check(client.Config())...); err != nil {
		return nil, err
	}
	seen := &resends{}
	async, err := sarama.NewAsyncProducerFromClient(watch(client, seen))
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p := &Producer{sender: sender{
		async: async, client: client, max: client.Config().Producer.MaxMessageBytes,
		budget: sendbudget.New(sendbudget.MaxInFlight), topics: newTopicLookup(client),
		resends: seen,
	}}
	p.inOrder = newInOrder(&p.sender)
	p.run()
	return p, nil
}

// Open connects and returns a producer with a client of its own, which Close closes. One broker of
// the list that answers is enough. The client asks no silent broker, unless the cluster names it: a
// silent broker would use up the time of the first messages. If ctx ends before, the error is its
// cause.
func Open(ctx context.Context, brokers []string, sc *sarama.Config) (*Producer, error) {
	own := conns.New(sc)
	sc = own.Config(sc)
	limits := bootstrap.Limits{Answer: answerWait, Grace: graceWait}
	found, err := bootstrap.Find(ctx, brokers, sc, limits)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	mend := cutAfter(openWait, own.Cut, own.Mend)
	unended := context.AfterFunc(ctx, own.Cut)
	p, err := openAtOne(found, sc)
	mend() // also if the answer came at the last moment
	if !unended() {
		if err == nil {
			p.Close()
			_ = p.client.Close() // it has only read
		}
		return nil, fmt.Errorf("producer: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, err
	}
	p.conns, p.wait, p.away = own, callWait, newAwayPartitions(p.client)
	return p, nil
}

// cutAfter calls cut after a wait. The function end ends the wait. After a cut, or while one is
// under way, end calls mend.
func cutAfter(wait time.Duration, cut, mend func()) (end func()) {
	over := make(chan struct{})
	limit := time.AfterFunc(wait, func() {
		defer close(over)
		cut()
	})
	return func() {
		if !limit.Stop() {
			<-over
			mend()
		}
	}
}

// openAtOne opens a producer at the first broker that gives it an ID.
func openAtOne(found bootstrap.Found, sc *sarama.Config) (*Producer, error) {
	var errs []error
	for _, broker := range found.Answered {
		p, err := openAt(broker, found.Usable, sc)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
		if errors.Is(err, sarama.ErrClusterAuthorizationFailed) {
			break // the other brokers answer the same
		}
	}
	return nil, errors.Join(errs...)
}

// openAt asks one broker for the producer's ID. Without topics, sarama asks one broker of its list
// again and again, also one that is away. The client knows the others afterwards.
func openAt(broker string, usable []string, sc *sarama.Config) (*Producer, error) {
	client, err := sarama.NewClient([]string{broker}, sc)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p, err := New(client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if err := client.RefreshBrokers(usable); err != nil {
		p.Close()
		return nil, errors.Join(err, client.Close())
	}
	return p, nil
}

// Client returns the client, which stays the producer's.
func (p *Producer) Client() sarama.Client { return p.client }

// Produce returns nil when all messages are acknowledged. If one exceeds sarama's own limit, the
// error matches idem.ErrTooLarge and no message was sent.
func (p *Producer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	for _, m := range msgs {
		if err := p.tooLarge(m); err != nil {
			return err
		}
	}
	return errors.Join(p.ProduceEach(ctx, msgs)...)
}

// ProduceEach returns an error for each message, nil for those that are acknowledged.
func (p *Producer) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	if p.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.wait, errBrokersSilent)
		defer cancel()
	}
	return p.publish(ctx, msgs)
}

// ProduceInOrder returns an error for each message, nil for those that are acknowledged. A message
// is in the log only behind all earlier messages of msgs with its topic and key.
func (p *Producer) ProduceInOrder(ctx context.Context, msgs []*idem.Message) []error {
	if p.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, min(p.wait, orderedCallWait), errBrokersSilent)
		defer cancel()
	}
	return p.inOrder.publish(ctx, msgs)
}

// Close sends the messages in flight and ends. Close returns when all messages have a result.
func (p *Producer) Close() {
	if p.end() {
		p.async.AsyncClose()
		if p.conns != nil {
			defer p.closeClient()()
		}
	}
	p.results.Wait()
	if p.conns == nil {
		p.topics.running.Wait()
	}
}

// closeClient cuts the connections and closes the client after closeWait. Call the returned
// function when all messages have results: the client is closed at once then. Cutting comes first,
// because the client waits for locks that requests hold until the read time-out.
func (p *Producer) closeClient() (closed func()) {
	shut := sync.OnceFunc(func() { _ = p.client.Close() }) // two calls at once would panic
	cut := time.AfterFunc(closeWait, func() {
		p.conns.Cut()
		shut()
	})
	return func() {
		cut.Stop()
		p.conns.Cut() // a topic may be looked up
		shut()
		p.topics.running.Wait()
	}
}
