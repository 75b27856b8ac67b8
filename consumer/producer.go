package consumer

import (
	"context"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer/internal/publish"
	"github.com/idem-go/idem/consumer/internal/topicadmin"
	"github.com/idem-go/idem/runner"
)

// Producer publishes on a sarama client. A Producer is an [idem.Producer], and serves the relay of
// an outbox. Create a Producer with [OpenProducer], or with [NewProducer] on an existing client.
// Safe for concurrent use.
type Producer struct {
	p        *publish.Producer
	commands runner.Commands
}

var _ idem.Producer = (*Producer)(nil)

// Produce returns nil when all in-sync replicas have acknowledged all messages.
//
// The error may match one of these:
//   - [idem.ErrTooLarge]: the size of a message will never be accepted.
//   - [idem.ErrRefused]: a message will never be accepted as it is.
//   - [idem.ErrNoTopic]: the topic of a message cannot be used.
//
// After any other error a message may or may not be in the log, so sending again may double it. If
// a message exceeds sarama's own limit, no message is sent.
//
// Produce returns when ctx ends at the latest; sarama may continue to try.
func (p *Producer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	return p.p.Produce(ctx, msgs...)
}

// ProduceEach publishes msgs and returns an error for each. The error is nil exactly for the
// messages that all in-sync replicas have acknowledged. Messages of one topic and key keep their
// order, unless one of them fails, or the broker refuses a batch with one of them. Later messages
// may then be in the log before or without that one. [Producer.ProduceInOrder] promises more.
//
// An error that matches one of these is about this message, which is not in the log:
//   - [idem.ErrTooLarge]: the broker refuses a batch with this message alone, or sarama does.
//   - [idem.ErrRefused]: the broker refuses the message as it is, for example its timestamp. A
//     message with a time before 1970 is not sent.
//   - [idem.ErrNoTopic]: the topic is missing, has an invalid name, or must not be written to. A
//     topic that was created a moment ago is found: brokers are asked for as long as sarama's
//     Metadata.Retry allows, 0.3 s with [OpenProducer]. Messages to other topics do not wait.
//
// Any other error is about the brokers. The message may be in the log, so sending again may double
// it. That includes a refusal after an attempt without an answer.
//
// With OpenProducer, a partition without a usable leader delays the messages for other partitions
// only once, until sarama gives up. From then on one message at a time probes the partition, for at
// most a second of the call. Other messages for the partition fail at once until a probe succeeds.
//
// ProduceEach returns when every result is known or ctx ends, with OpenProducer after at most 30 s.
// Messages without a result then get an error that wraps the cause. For messages already sent the
// retries go on, for minutes if a broker is silent. At most 32 MiB of messages are in flight;
// further messages wait in the call.
func (p *Producer) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	return p.p.ProduceEach(ctx, msgs)
}

// ProduceInOrder publishes msgs as [Producer.ProduceEach] does, with one promise more. A message is
// in the log only behind all earlier messages of msgs with its topic and key. The promise holds at
// any time, also after an error and after the end of ctx. An outbox needs it to publish several
// events of an aggregate at once.
//
// The messages for a partition form one record batch, with the sequence number of an idempotent
// producer (KIP-98). A broker appends the batch as a whole or not at all. More than 900 kB for one
// partition are several batches, each behind the acknowledgement of the one before. Calls run one
// after the other.
//
// A client with interceptors or a transaction ID gets an error for every message. If a partitioner
// gives one key several partitions, the messages for the later ones get an error.
//
// If no broker answers about a topic within 2 s, the messages for the topic get an error, and delay
// no others.
//
// A batch without an answer is sent at most five times, within about a second. Errors that match
// [idem.ErrTooLarge] or [idem.ErrNoTopic], and a time before 1970, mean the same as from
// [Producer.ProduceEach]. Any other
// error may be about the message or about its batch. Publish the messages with an error by
// ProduceEach, the earlier ones of a topic and key first.
func (p *Producer) ProduceInOrder(ctx context.Context, msgs []*idem.Message) []error {
	return p.p.ProduceInOrder(ctx, msgs)
}

// CheckTopics returns nil if all topics exist and this client may write to each: see
// [outbox.RelayConfig].Topics. An error that matches [idem.ErrNoTopic] names the topics that are
// missing or that this client may not write to, and the commands that create the topics or grant
// the right. After any other error the state of the topics is not known. CheckTopics asks a broker
// once, within the time-outs of the client. The context has no effect.
//
// [outbox.RelayConfig]: https://pkg.go.dev/github.com/idem-go/idem/outbox#RelayConfig
func (p *Producer) CheckTopics(_ context.Context, topics []string) error {
	found, err := topicadmin.Describe(p.p.Client(), topics)
	if err != nil {
		return err
	}
	return p.commands.CheckWritable(found)
}

// Close sends the messages in flight and ends. Calls that wait get an error for each message that
// sarama gives up or has not taken yet. Close always returns nil.
//
// With [OpenProducer], Close cuts the connections after 5 s, which ends all calls if no broker
// answers, and closes the client. With [NewProducer], Close lasts as long as sarama retries.
func (p *Producer) Close() error {
	p.p.Close()
	return nil
}
