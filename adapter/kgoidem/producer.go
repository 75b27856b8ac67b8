package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/sendbudget"
	"github.com/idem-go/idem/runner"
)

// Producer publishes on a franz-go client. A Producer is an [idem.Producer], and serves the relay
// of an outbox. Create a Producer with [NewProducer]. Safe for concurrent use.
//
// A Producer is no outbox.OrderedProducer, unlike the producer of package consumer. franz-go forms
// its record batches itself, so no call can promise that a record is in the log only behind all
// earlier ones of its key. The relay keeps the order without that promise: it waits for the
// acknowledgement of an event before it sends the next one of the aggregate. Outboxes with long
// queues of single aggregates are published faster by the producer of package consumer.
type Producer struct {
	cl     *kgo.Client
	budget *sendbudget.Budget
}

var _ idem.Producer = (*Producer)(nil)

const (
	// callWait bounds a call of ProduceEach.
	callWait = 30 * time.Second
	// aloneWait bounds how long a call waits until no other record is in flight, to send a record
	// alone.
	aloneWait = 5 * time.Second
	// maxTogether bounds, in bytes, the records that franz-go gets before their results are
	// awaited. Those for one partition become one batch, and a broker takes batches of 1 MB by
	// default.
	maxTogether = 900_000
	// perRecord is roughly the memory, in bytes, that franz-go needs beside a record.
	perRecord = 512
)

var (
	errNotSent       = errors.New("not sent")
	errNoAnswer      = errors.New("sent, no answer yet")
	errBrokersSilent = errors.New("brokers do not answer")
)

// producing returns the options of a producer that loses and doubles no record (K-35). The context
// of a call bounds the time of its records. kgo.RecordDeliveryTimeout would count from the
// timestamp of a record. A dead letter has the timestamp of its event, so franz-go would give it up
// before sending it.
func producing() []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(64 << 20), // the broker decides which record is too large
		kgo.MaxBufferedBytes(2 * sendbudget.MaxInFlight),
		kgo.ProduceRequestTimeout(10 * time.Second),
	}
}

// NewProducer returns a producer on an existing client, such as one for dead letters or for the
// relay of an outbox. The client stays the caller's to close.
//
// NewProducer refuses a client that could lose, double or reorder records. RequiredAcks must be
// AllISRAcks and idempotent writes must be on, as they are by default. There must be no
// TransactionalID. AllowAutoTopicCreation is refused too, because a misspelt topic must be an
// error. RecordDeliveryTimeout is refused because franz-go counts it from the timestamp of a
// record, and a message that is older could never be sent. The end of a call bounds the time of its
// records instead.
//
// Set kgo.ProducerBatchMaxBytes above the largest record that the brokers accept.
func NewProducer(client *kgo.Client) (*Producer, error) {
	if client == nil {
		return nil, errors.New("client is nil")
	}
	var problems []error
	refuse := func(bad bool, text string) {
		if bad {
			problems = append(problems, errors.New("franz-go: "+text))
		}
	}
	acks, _ := client.OptValue(kgo.RequiredAcks).(kgo.Acks)
	refuse(acks != kgo.AllISRAcks(),
		"RequiredAcks must be AllISRAcks: otherwise a record is lost with its leader")
	refuse(client.OptValue(kgo.DisableIdempotentWrite) == true,
		"idempotent writes must be on: otherwise retries double records and change their order")
	refuse(client.OptValue(kgo.AllowAutoTopicCreation) == true,
		"AllowAutoTopicCreation must be off: a misspelt topic must be an error")
	limit, _ := client.OptValue(kgo.RecordDeliveryTimeout).(time.Duration)
	refuse(limit != 0,
		"RecordDeliveryTimeout must not be set: it counts from the timestamp of a record, so older messages are never sent")
	if id, ok := client.OptValue(kgo.TransactionalID).(*string); ok {
		refuse(id != nil, "TransactionalID must not be set")
	} else if id, ok := client.OptValue(kgo.TransactionalID).(string); ok {
		refuse(id != "", "TransactionalID must not be set")
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return &Producer{cl: client, budget: sendbudget.New(sendbudget.MaxInFlight)}, nil
}

// Produce returns nil when all in-sync replicas have acknowledged all messages.
//
// The error may match one of these:
//   - [idem.ErrTooLarge]: the size of a message will never be accepted.
//   - [idem.ErrRefused]: a message will never be accepted as it is.
//   - [idem.ErrNoTopic]: the topic of a message cannot be used.
//
// After any other error a message may or may not be in the log, so sending again may double it. The
// classes have one exception, see [Producer.ProduceEach]. Produce returns when ctx ends at the
// latest; franz-go may continue to try.
func (p *Producer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	return errors.Join(p.ProduceEach(ctx, msgs)...)
}

// CheckTopics returns nil if all topics exist and this client may write to each: see
// outbox.RelayConfig.Topics. An error that matches [idem.ErrNoTopic] names the topics that are
// missing or that this client may not write to, and the commands that create the topics or grant
// the right. After any other error the state of the topics is not known.
func (p *Producer) CheckTopics(ctx context.Context, topics []string) error {
	found, err := admin{p.cl}.Topics(ctx, topics)
	if err != nil {
		return err
	}
	seeds, _ := p.cl.OptValue(kgo.SeedBrokers).([]string)
	return runner.Commands{Brokers: seeds}.CheckWritable(found)
}

// ProduceEach publishes msgs and returns an error for each. The error is nil exactly for the
// messages that all in-sync replicas have acknowledged. Messages of one topic and key keep their
// order, unless one of them fails, or the broker refuses a batch with one of them. Later messages
// may then be in the log before or without that one.
//
// The classes of errors are those of [Producer.Produce]. An error with a class is about this
// message, which is not in the log, with one exception. Any other error is about the brokers: the
// message may be in the log, so sending again may double it.
//
// The exception: franz-go does not tell whether it has sent a refused batch before. The answer to
// the first attempt may be lost, and the next attempt be refused, since a limit or a right has
// changed or the timestamp has become too old. The message may then be in the log despite the class.
//
// ProduceEach returns when every result is known or ctx ends, and after at most 30 s. At most 32
// MiB of messages are in flight; further messages wait in the call.
func (p *Producer) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	ctx, cancel := context.WithTimeoutCause(ctx, callWait, errBrokersSilent)
	defer cancel()
	c := &call{p: p, msgs: msgs, errs: make([]error, len(msgs)),
		results: make(chan result, 2*len(msgs))}
	all := make([]int, len(msgs))
	for i := range all {
		all[i] = i
		c.errs[i] = errNotSent
	}
	for part := range c.parts(all) {
		if !c.send(ctx, part, false) {
			break
		}
	}
	c.sendAlone(ctx)
	for i, err := range c.errs {
		if err != nil {
			c.errs[i] = explain(ctx, err)
		}
	}
	return c.errs
}

// result is the result of one record.
type result struct {
	index int
	err   error
}

// call is one call of ProduceEach. Only one goroutine uses a call.
type call struct {
	p       *Producer
	msgs    []*idem.Message
	errs    []error
	results chan result // has room for all, so that no result waits
}

func weightOf(m *idem.Message) int {
	n := perRecord + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// parts yields indexes in parts of at most maxTogether bytes, or of one message.
func (c *call) parts(indexes []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		first, size := 0, 0
		for n, i := range indexes {
			weight := weightOf(c.msgs[i])
			if n > first && size+weight > maxTogether {
				if !yield(indexes[first:n]) {
					return
				}
				first, size = n, 0
			}
			size += weight
		}
		if first < len(indexes) {
			yield(indexes[first:])
		}
	}
}

// send sends messages and waits for the results. The result is false if ctx ended before.
func (c *call) send(ctx context.Context, indexes []int, alone bool) bool {
	sent := 0
	for _, i := range indexes {
		weight := weightOf(c.msgs[i])
		if err := c.p.budget.Take(ctx, weight, alone); err != nil {
			return false
		}
		c.errs[i] = errNoAnswer
		sent++
		c.p.cl.Produce(ctx, ToRecord(c.msgs[i]), func(_ *kgo.Record, err error) {
			c.p.budget.Give(weight)
			c.results <- result{i, err}
		})
	}
	for ; sent > 0; sent-- {
		select {
		case r := <-c.results:
			c.errs[r.index] = r.err
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// sendAlone sends the messages again that the broker refused in a batch: another message of the
// batch may be the reason. Each is sent alone, while no other message is in flight, until the
// answer is about that message.
func (c *call) sendAlone(ctx context.Context) {
	var refused []int
	for i, err := range c.errs {
		if isTooLarge(err) || isRefused(err) {
			refused = append(refused, i)
		}
	}
	if len(refused) == 0 {
		return
	}
	if err := c.p.budget.Lock(ctx, aloneWait); err != nil {
		for _, i := range refused { // the verdict is the batch's, not the message's: only its text
			c.errs[i] = fmt.Errorf("refused in a batch (%s), and could not be sent alone: %w",
				idem.ErrorText(c.errs[i]), err)
		}
		return
	}
	defer c.p.budget.Unlock()
	for n, i := range refused {
		if !c.send(ctx, []int{i}, true) {
			for _, rest := range refused[n+1:] {
				c.errs[rest] = errNotSent
			}
			return
		}
		switch err := c.errs[i]; {
		case isTooLarge(err):
			c.errs[i] = fmt.Errorf("%w: %w", idem.ErrTooLarge, err)
		case isRefused(err):
			c.errs[i] = fmt.Errorf("%w: %w", idem.ErrRefused, err)
		}
	}
}

// explain adds the class to an error about a topic, and the cause to a message without a result.
func explain(ctx context.Context, err error) error {
	switch {
	case isAny(err, idem.ErrTooLarge, idem.ErrRefused):
		return err
	case isAny(err, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException,
		kerr.TopicAuthorizationFailed):
		return fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
	case isAny(err, errNotSent, errNoAnswer) && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

func isTooLarge(err error) bool {
	return isAny(err, kerr.MessageTooLarge, kerr.RecordListTooLarge)
}

// isRefused reports whether the broker will never take a record as it is.
func isRefused(err error) bool {
	return isAny(err, kerr.InvalidTimestamp, kerr.InvalidRecord, kerr.PolicyViolation)
}
