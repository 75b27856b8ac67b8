package kafkagoidem

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

const (
	// callWait bounds a call of ProduceEach.
	callWait = 30 * time.Second
	// produceWait bounds one request.
	produceWait = 10 * time.Second
	// noLimit leaves the size of a record to the broker.
	noLimit = 1 << 30
)

// Producer publishes the dead letters and copies of a runner. kafka-go has no idempotent producer,
// so Producer never sends a record again by itself. Safe for concurrent use.
type Producer struct {
	writer   *kafka.Writer
	commands runner.Commands
}

var _ idem.Producer = (*Producer)(nil)

// NewProducer returns a producer with connections of its own, for the brokers, TLS, SASL, Dial and
// ClientID of cfg. Other fields are ignored. Close it with [Producer.Close].
func NewProducer(cfg Config) (*Producer, error) {
	s := newSettings(cfg)
	problems := s.checkSecurity()
	if len(cfg.Brokers) == 0 {
		problems = append(problems, errors.New("Config.Brokers is empty"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return newProducer(s.addr(), s.transport(), s.commands()), nil
}

func newProducer(addr net.Addr, transport *kafka.Transport, commands runner.Commands) *Producer {
	return &Producer{commands: commands, writer: &kafka.Writer{
		Addr: addr, Transport: transport, RequiredAcks: kafka.RequireAll,
		Balancer:    kafka.Murmur2Balancer{}, // that of the Java client
		MaxAttempts: 1, WriteTimeout: produceWait, ReadTimeout: produceWait,
		// A broker refuses a whole batch for one record.
		BatchSize: 1, BatchBytes: noLimit,
	}}
}

// Produce returns nil when all in-sync replicas have acknowledged all messages.
//
// The error may match one of these:
//   - [idem.ErrTooLarge]: the size of a message will never be accepted.
//   - [idem.ErrRefused]: a message will never be accepted as it is.
//   - [idem.ErrNoTopic]: the topic of a message cannot be used.
//
// After any other error a message may or may not be in the log, so sending again may double it.
// Produce returns when ctx ends at the latest; kafka-go may continue to try.
func (p *Producer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	err := errors.Join(p.ProduceEach(ctx, msgs)...)
	if err != nil {
		err = p.commands.ExplainProduce(err, classify(err), msgs)
	}
	return err
}

// ProduceEach publishes msgs and returns an error for each. The error is nil exactly for the
// messages that all in-sync replicas have acknowledged. Messages of one topic and key keep their
// order, unless one of them fails. Each message is a request of its own.
//
// The classes of errors are those of [Producer.Produce]. ProduceEach returns when every result is
// known or ctx ends, and after at most 30 s.
func (p *Producer) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	errs := make([]error, len(msgs))
	byTopic := make(map[string][]int) // a missing topic fails a whole call of kafka-go
	for i, m := range msgs {
		byTopic[m.Topic] = append(byTopic[m.Topic], i)
	}
	for _, indexes := range byTopic {
		p.produce(ctx, msgs, indexes, errs)
	}
	return errs
}

// produce sends the messages of one topic.
func (p *Producer) produce(ctx context.Context, msgs []*idem.Message, indexes []int, errs []error) {
	records := make([]kafka.Message, len(indexes))
	for n, i := range indexes {
		records[n] = recordOf(msgs[i])
	}
	err := p.writer.WriteMessages(ctx, records...)
	var each kafka.WriteErrors
	isEach := errors.As(err, &each) && len(each) == len(indexes)
	for n, i := range indexes {
		if isEach {
			err = each[n]
		}
		errs[i] = explain(err)
	}
}

// recordOf turns a message into a record. A message without a time gets the present time when it is
// sent.
func recordOf(m *idem.Message) kafka.Message {
	r := kafka.Message{Topic: m.Topic, Key: m.Key, Value: m.Value, Time: m.Time}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// explain adds the class to an error about a message.
func explain(err error) error {
	var large kafka.MessageTooLargeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large), isAny(err, kafka.MessageSizeTooLarge, kafka.RecordListTooLarge):
		return fmt.Errorf("%w: %w", idem.ErrTooLarge, err)
	case isAny(err, kafka.InvalidTimestamp, kafka.InvalidRecord, kafka.PolicyViolation):
		return fmt.Errorf("%w: %w", idem.ErrRefused, err)
	case isAny(err, kafka.UnknownTopicOrPartition, kafka.InvalidTopic, kafka.TopicAuthorizationFailed):
		return fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
	}
	return err
}

// Close waits for records in flight, and closes the connections.
func (p *Producer) Close() error {
	if err := p.writer.Close(); err != nil {
		return fmt.Errorf("close producer: %w", err)
	}
	if t, ok := p.writer.Transport.(*kafka.Transport); ok {
		t.CloseIdleConnections()
	}
	return nil
}
