package idem

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/engine"
)

// Processor handles messages. It finds the handler and the identity of each event, claims the event
// in the store, runs the handler if the event is new, and publishes dead letters. A Processor knows
// no Kafka client. The caller fetches messages and commits those that are settled.
//
// A Processor is safe for concurrent use. Messages of one partition that must stay in order belong
// in one call.
type Processor struct{ engine *engine.Processor }

// NewProcessor returns a processor for the handlers of r. The error joins all mistakes in cfg and
// in the registrations. NewProcessor does not use the network.
func NewProcessor(r *Router, cfg Config) (*Processor, error) {
	if cfg.ErrorText == nil {
		cfg.ErrorText = ErrorText
	}
	var handlers *engine.Table
	if r != nil {
		handlers = r.table
	}
	e, err := engine.New(handlers, engine.Config(cfg))
	if err != nil {
		return nil, err
	}
	return &Processor{engine: e}, nil
}

// Handle settles one message. The errors are those of [Processor.HandleBatch].
func (p *Processor) Handle(ctx context.Context, m *Message) error {
	return p.engine.Handle(ctx, m)
}

// HandleBatch settles msgs in order and returns the number of settled messages from the front.
// Commit only those; pass the others again. Neighbouring events share round trips and transactions,
// see [OnTx]. A settled message is handled, a known duplicate, skipped, dead-lettered, or has a
// delayed retry.
//
// err is nil if, and only if, all messages are settled. Otherwise err is the reason for the first
// message that is not:
//
//   - a [WaitError] that matches [ErrBusy], [ErrNotDue] or [dedup.ErrUnavailable]: pass the
//     messages again after the time in the error;
//   - an error that matches [ErrStopping] or [ErrPartitionLost]: ctx has ended;
//   - [ErrNoProducer]: the message would become a dead letter, but there is no producer;
//   - [ErrAbandoned]: a handler ignored its cancelled context and was abandoned;
//   - [ErrTooOld]: the event is older than the memory of the store ([WhenTooOld]).
//
// After the end of ctx no handler starts, and running handlers finish within [Config].Grace.
//
// HandleBatch records in the stores how far each partition is settled, so that pgstore can delete
// expired events ([dedup.ProgressRecorder]). It does so at most every 10 s, for at most one second,
// and at [Processor.Close]. Pass the messages of a partition in order, and pass messages that are
// not settled again; otherwise the progress of the partition stops. Commit settled messages well
// within the retention. A partition without new messages delays the deletion for its whole scope;
// report its progress with [Processor.RecordProgress].
func (p *Processor) HandleBatch(ctx context.Context, msgs []*Message) (settled int, err error) {
	return p.engine.HandleBatch(ctx, msgs)
}

// Settle is [Processor.HandleBatch] for callers that need the progress during the call. The
// function progress gets the number of settled messages from the front, each time the number has
// grown. It is called on the goroutine of Settle, and must be quick. Settle records no progress in
// the stores, see [Processor.NoteProgress].
func (p *Processor) Settle(ctx context.Context, msgs []*Message, progress func(settled int)) error {
	return p.engine.Settle(ctx, msgs, progress)
}

// OrderKey returns the key of the order that m belongs to. This is the Kafka key, or the identity
// of the event if the record has no Kafka key. Empty for a record without both, and while an
// identity from [FromData] needs a schema that is not known yet. Do not pass two messages with
// equal order keys to two calls of Settle at the same time.
func (p *Processor) OrderKey(m *Message) string { return p.engine.OrderKey(m) }

// Due returns how long m must not be handled yet, if m is a copy for a later attempt in a retry
// topic of the group. Otherwise Due returns zero. The wait ends at the latest when the delay of the
// topic has passed since [Message].Received. Due sets a zero Received to the present time.
//
// HandleBatch waits for that time itself. A consumer that can pause a partition should pause it
// instead.
func (p *Processor) Due(m *Message) time.Duration { return p.engine.DueIn(m) }

// Assigned reports that a partition was assigned to this process. The first events of the partition
// are then watched for one that kills the process. A partition without a call of Assigned counts as
// newly assigned once.
//
// For callers of [Processor.HandleBatch]: a store that does not know the partition deletes no
// records until the progress of the partition is known. Messages of an earlier assignment that were
// not settled no longer stop the progress.
func (p *Processor) Assigned(topic string, partition int32) { p.engine.Assigned(topic, partition) }

// RunsDeferred reports whether a handler is [KeyOrdered] or a store may hold deferred events, so
// that [Processor.RunDeferred] has work.
func (p *Processor) RunsDeferred() bool { return p.engine.RunsDeferred() }

// RunDeferred runs the deferred events of a partition when they are due, in the order of Kafka
// keys, until ctx ends. Only the owner of the partition may call RunDeferred, once, after
// [Processor.Assigned], beside the calls of HandleBatch. Package lane calls it.
//
// RunDeferred returns after all its work has ended. The error is nil or matches [ErrAbandoned].
func (p *Processor) RunDeferred(ctx context.Context, topic string, partition int32) error {
	return p.engine.RunDeferred(ctx, topic, partition)
}

// RetryDelays returns the delays of all handlers with [RetryTopics], ascending. A consumer reads
// [deadletter.RetryTopic] of each of its topics for each delay.
func (p *Processor) RetryDelays() []time.Duration { return p.engine.RetryDelays() }

// KeyOrdered returns the event types of the handlers with [KeyOrdered], sorted.
func (p *Processor) KeyOrdered() []string { return p.engine.KeyOrdered() }

// DeadLetterTopic returns the dead-letter topic for a topic. For a retry topic of the group it is
// that of the source topic.
func (p *Processor) DeadLetterTopic(topic string) string { return p.engine.DeadLetterTopicOf(topic) }

// Register records in the stores the group and the extractors of each event type. A consumer calls
// Register at its start. The stores refuse changed extractors, and a group under another scope,
// because every event of the backlog would be new. Register sets r.Scope and r.Descriptors for each
// store and scope. The default of r.Group is [Config].Group. A store that is no [dedup.Registrar]
// is skipped.
//
// The error joins the refusals. They match [dedup.ErrIdentityChanged], [dedup.ErrOtherScope], or
// [dedup.ErrUnavailable]; call Register again after the latter. Other stores keep their records.
func (p *Processor) Register(ctx context.Context, r dedup.Registration) error {
	return p.engine.Register(ctx, r)
}

// RecordProgress records the progress of the group in the stores, for each scope of the handlers. A
// store that deletes expired events by consumed time needs the progress ([dedup.ProgressRecorder]);
// other stores are skipped. The error joins those of the stores. An error only delays deletions.
func (p *Processor) RecordProgress(ctx context.Context, progress []dedup.Progress) error {
	return p.engine.RecordProgress(ctx, progress)
}

// NoteProgress notes the progress of a partition, for callers of [Processor.Settle]. NoteProgress
// may be called for each message. The stores get the progress at most every 10 s, in a call of at
// most one second, and at [Processor.Close]. An error is logged, and the record is repeated later.
// [Processor.HandleBatch] and package lane note the progress themselves. Safe for concurrent use.
func (p *Processor) NoteProgress(ctx context.Context, progress dedup.Progress) {
	p.engine.NoteProgress(ctx, progress)
}

// Stores returns the stores of all handlers, each once.
func (p *Processor) Stores() []dedup.Store { return p.engine.Stores() }

// Status is the health of a processor.
type Status struct {
	// Down has the names of the stores, the producer and the services of a [Decoder] that cannot be
	// reached.
	Down []string
	// Abandoned is the number of abandoned handlers that still run.
	Abandoned int
	// MostlyUnhandled reports that more than half of the last 1,000 events had a type without a
	// handler, for example because a producer has renamed a type.
	MostlyUnhandled bool
	// OpenBreakers has the names of the handlers with an open or half-open circuit breaker. Their
	// events wait for a dependency. Sorted.
	OpenBreakers []string
}

// Status returns the present health. Safe for concurrent use.
func (p *Processor) Status() Status { return Status(p.engine.Status()) }

// Close stops the renewal of leases and records progress that is not recorded yet, for at most one
// second. It waits for calls of the stores that were given up, for at most 5 s. Call Close after
// the last HandleBatch has returned. If abandoned handlers still run, Close does not wait for them
// and returns an error that matches [ErrAbandoned] with their number.
func (p *Processor) Close() error { return p.engine.Close() }
