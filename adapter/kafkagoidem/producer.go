package kafkagoidem

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
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
	// maxSize bounds a record, which the broker bounds too. A request has 32 bits for its length.
	maxSize = 1 << 30
)

// balancer is that of the Java client.
var balancer kafka.Murmur2Balancer

// Producer publishes the dead letters and copies of a runner. kafka-go has no idempotent producer,
// so Producer never sends a record again by itself. Safe for concurrent use.
type Producer struct {
	client    *kafka.Client
	transport *kafka.Transport
	commands  runner.Commands
	slots     *slots
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

// newProducer uses no kafka.Writer. A Writer keeps each record until it has been sent, also after
// the call.
func newProducer(addr net.Addr, transport *kafka.Transport, commands runner.Commands) *Producer {
	return &Producer{
		client:    &kafka.Client{Addr: addr, Transport: transport, Timeout: produceWait},
		transport: transport, commands: commands, slots: newSlots(),
	}
}

// Produce returns nil when all in-sync replicas have acknowledged all messages.
//
// The error may match one of these:
//   - [idem.ErrTooLarge]: the size of a message will never be accepted.
//   - [idem.ErrRefused]: a message will never be accepted as it is.
//   - [idem.ErrNoTopic]: the topic of a message cannot be used.
//
// After any other error a message may or may not be in the log, so sending again may double it.
// Produce returns when ctx ends at the latest. A request in flight goes on for up to 10 s, and may
// still write its message. Meanwhile no other request goes to the same partition.
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
	leave, err := p.slots.enter()
	if err != nil {
		return slices.Repeat([]error{err}, len(msgs))
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	errs := make([]error, len(msgs))
	byTopic := make(map[string][]int)
	for i, m := range msgs {
		byTopic[m.Topic] = append(byTopic[m.Topic], i)
	}
	for topic, indexes := range byTopic {
		p.produce(ctx, topic, msgs, indexes, errs)
	}
	return errs
}

// produce sends the messages of one topic, those of a partition one after the other.
func (p *Producer) produce(
	ctx context.Context, topic string, msgs []*idem.Message, indexes []int, errs []error,
) {
	ids, err := p.partitions(ctx, topic)
	if err != nil {
		for _, i := range indexes {
			errs[i] = explain(err)
		}
		return
	}
	byID := make(map[int][]int)
	for _, i := range indexes {
		id := balancer.Balance(kafka.Message{Key: msgs[i].Key}, ids...)
		byID[id] = append(byID[id], i)
	}
	var sending sync.WaitGroup
	for id, indexes := range byID {
		sending.Go(func() {
			for _, i := range indexes {
				errs[i] = explain(p.send(ctx, topic, id, msgs[i]))
			}
		})
	}
	sending.Wait()
}

// partitions returns the partitions of a topic.
func (p *Producer) partitions(ctx context.Context, topic string) ([]int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.slots.closing, cancel)()
	answer, err := p.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	if len(answer.Topics) != 1 {
		return nil, runner.ErrNoAnswer
	}
	t := answer.Topics[0]
	if t.Error == nil && len(t.Partitions) == 0 {
		return nil, runner.ErrNoAnswer
	}
	ids := make([]int, len(t.Partitions))
	for i, found := range t.Partitions {
		ids[i] = found.ID
	}
	return ids, t.Error
}

// send makes one request with one message. A broker refuses a whole batch for one record.
func (p *Producer) send(ctx context.Context, topic string, id int, m *idem.Message) error {
	if len(m.Key)+len(m.Value) > maxSize {
		return kafka.MessageSizeTooLarge
	}
	req := &kafka.ProduceRequest{
		Topic: topic, Partition: id, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(recordOf(m)),
	}
	to := partition{Topic: topic, Partition: int32(id)} //nolint:gosec // from an int32
	return p.slots.send(ctx, to, func() error {
		answer, err := p.client.Produce(context.WithoutCancel(ctx), req)
		if err != nil {
			return err
		}
		return answer.Error
	})
}

// recordOf turns a message into a record. A message without a time gets the present time when it is
// sent.
func recordOf(m *idem.Message) kafka.Record {
	r := kafka.Record{Key: kafka.NewBytes(m.Key), Value: kafka.NewBytes(m.Value), Time: m.Time}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// explain adds the class to an error about a message.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case isAny(err, kafka.MessageSizeTooLarge, kafka.RecordListTooLarge):
		return fmt.Errorf("%w: %w", idem.ErrTooLarge, err)
	case isAny(err, kafka.InvalidTimestamp, kafka.InvalidRecord, kafka.PolicyViolation):
		return fmt.Errorf("%w: %w", idem.ErrRefused, err)
	case isAny(err, kafka.UnknownTopicOrPartition, kafka.InvalidTopic, kafka.TopicAuthorizationFailed):
		return fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
	}
	return err
}

// Close waits for the requests in flight, at most one for each partition, and closes the
// connections. That takes at most about 10 s. Messages that wait for an earlier request fail.
// The error is always nil.
func (p *Producer) Close() error {
	p.slots.close()
	p.transport.CloseIdleConnections()
	return nil
}
