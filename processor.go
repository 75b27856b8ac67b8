package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// Config of a [Processor].
type Config struct {
	// Store is the store of handlers without the option [Store].
	Store dedup.Store
	// Scope names who remembers, for handlers without the option [Scope]. Required; a consumer sets it to the group.
	Scope string
	// Group is the consumer group: it names the dead-letter topics. Defaults to Scope.
	Group string
	// Lease is how long a claim lasts without renewal; the event of a worker that crashed is taken over after at most this
	// long. Handlers may take longer, their claims are renewed. Defaults to 30 s, at least 1 s.
	Lease time.Duration
	// StoreTimeout is how long the store may take to answer a claim. Then the call is given up, also if the store's client does not heed
	// contexts, and the claim is asked for again under the same token. A store that is slow gets twice as long each time, up to a Lease.
	// Defaults to 2 s, or a Lease if that is shorter.
	StoreTimeout time.Duration
	// BusyWait is how long one call of HandleBatch waits, in all, for what is not in its power: an event that is busy elsewhere,
	// a store or a producer that is down. Then it returns a [WaitError]. Keep it below the poll interval of the client. Only
	// recording an effect that has happened is tried for longer, up to a Lease, since giving up repeats the effect.
	// Defaults to 1 s; [Forever] waits until the context ends.
	BusyWait time.Duration
	// Grace is how long work that was begun may go on when the context of HandleBatch ends. Two seconds before it is over,
	// handlers have their contexts cancelled with the cause [ErrStopping]; at its end they are abandoned. Transactions are cancelled
	// at once, as rolling back is free. Defaults to 10 s.
	Grace time.Duration
	// Producer sends dead letters. If nil, HandleBatch stops at what it would dead-letter, with [ErrNoProducer].
	Producer Producer
	// DeadLetterTopic names the topic for dead letters of a topic. Defaults to "<topic>.<group>.dlq": dead letters are
	// per group, as another group may have handled the event well (rule 6).
	DeadLetterTopic func(topic string) string
	// Shadow keeps the store and obeys it in nothing: what it would have skipped is counted ([observe.DuplicateEvent].Shadow), logged
	// at level debug, and run. It is how a consumer that exists is moved over without applying its backlog twice: let it run
	// so until what it would skip is what is expected, then take the option away. Handlers must then be [Blocking].
	Shadow bool
	// Observers are told what happens; see [Observer].
	Observers []observe.Observer
	// Logger defaults to slog.Default(). Payloads are never logged.
	Logger *slog.Logger
	// ErrorText makes the text of an error for log lines, dead letters and the store, where at most 1 KiB of it is kept.
	// Defaults to [ErrorText]. It is called from several goroutines at once, with errors that are not nil. Observers get
	// errors as they are.
	ErrorText func(error) string
}

func (c Config) withDefaults() Config {
	c.Group = cmp.Or(c.Group, c.Scope)
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, min(2*time.Second, c.Lease))
	c.BusyWait = cmp.Or(c.BusyWait, time.Second)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	if c.DeadLetterTopic == nil {
		c.DeadLetterTopic = deadletter.Topic(c.Group)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.ErrorText == nil {
		c.ErrorText = ErrorText
	}
	return c
}

func (c Config) validate() (problems []error) {
	if c.Scope == "" {
		problems = append(problems, errors.New("Config.Scope is empty: set it, usually to the consumer group"))
	}
	if c.Lease < time.Second {
		problems = append(problems, fmt.Errorf("Config.Lease is %s, at least 1s is needed to renew it in time", c.Lease))
	}
	if c.BusyWait < 0 || c.Grace < 0 || c.StoreTimeout < 0 {
		problems = append(problems, errors.New("Config.BusyWait, Config.Grace and Config.StoreTimeout must not be negative"))
	}
	return problems
}

// Processor settles messages: it finds the handler and the identity, asks the store, runs what is fresh,
// and dead-letters what will never work. It knows nothing of Kafka clients: fetching and committing are the caller's,
// who commits what is settled and nothing else. Safe for concurrent use, as long as messages of one partition that must
// stay in order are in one call.
type Processor struct {
	cfg         Config
	log         *slog.Logger
	obs         observers
	routes      routes
	retryTopics deadletter.RetryTopics // of the group
	batches     bool                   // a handler takes many events at once
	stores      []*storeAccess
	producer    health

	unanswered         unanswered
	abandoned          sync.WaitGroup
	abandonedNow       atomic.Int64
	closing            context.Context //nolint:containedctx // ends when Close begins
	close              context.CancelFunc
	crashGuard         crashGuard
	unhandled          unhandled
	deferredPartitions deferredPartitions
	ordered            bool // a handler is KeyOrdered
	own                *ownProgress
}

// NewProcessor checks all wiring and returns every mistake, joined. It uses no network.
func NewProcessor(r *Router, cfg Config) (*Processor, error) {
	cfg = cfg.withDefaults()
	p := &Processor{cfg: cfg, log: cfg.Logger, producer: health{name: "producer"}, retryTopics: deadletter.RetryTopicsOf(cfg.Group)}
	problems := cfg.validate()
	for _, o := range cfg.Observers {
		if !p.obs.add(o) {
			problems = append(problems, fmt.Errorf("observer %T implements no observer interface", o))
		}
	}
	if r == nil {
		return nil, errors.Join(append(problems, errors.New("router is nil"))...)
	}
	problems = append(problems, p.wire(r.table)...)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	p.own = newOwnProgress(p.stores)
	for _, l := range p.stores {
		l.renewer = dedup.NewLeaseRenewer(l.store, cfg.Lease)
	}
	p.closing, p.close = context.WithCancel(context.Background())
	return p, nil
}

// Handle settles one message, or says why it is not settled, like [Processor.HandleBatch].
func (p *Processor) Handle(ctx context.Context, m *Message) error {
	_, err := p.HandleBatch(ctx, []*Message{m})
	return err
}

// maxAbandoned is how many handlers may hang behind before nothing more is begun (rule 48).
const maxAbandoned = 64

// HandleBatch settles msgs in order. Events next to each other share round trips and transactions, see [OnTx]. The first settled of them are handled, known as duplicates, skipped, or
// dead-lettered, and may be committed; the others must come again. err is nil exactly if all are settled, else it says
// why the next one is not:
//
//   - a [WaitError] that matches [ErrBusy] or [dedup.ErrUnavailable]: come again after the time it names;
//   - an error that matches [ErrStopping] or [ErrPartitionLost]: ctx has ended; what was begun was given the grace;
//   - [ErrNoProducer]: the message would be dead-lettered and there is no way to;
//   - [ErrAbandoned]: a handler hangs and was left behind;
//   - [ErrTooOld]: the store can no longer know the event, and its handler stops at that ([WhenTooOld]).
//
// When ctx ends, nothing new is begun and what runs is finished, see [Config].Grace.
//
// HandleBatch records how far each partition is settled, so that a store in Postgres can delete what has expired
// ([dedup.ProgressRecorder]): at most every 10 s, in a call of a second at most, and at [Processor.Close]. It goes by the messages that
// it is given. Those of one partition must come in their order, and what is not settled must come again, or the progress of that
// partition stands still. Commit what is settled well within the retention. A partition without new messages holds up the deletion
// for its whole scope: say with [Processor.RecordProgress] that it is caught up.
func (p *Processor) HandleBatch(ctx context.Context, msgs []*Message) (settled int, err error) {
	if p.own != nil {
		if p.own.begin(msgs) {
			p.writeProgress(ctx, true)
		}
		defer func() { // also if an observer panics
			if p.own.end(msgs, settled) {
				p.writeProgress(ctx, false)
			}
		}()
	}
	err = p.Settle(ctx, msgs, func(n int) { settled = n })
	return settled, err
}

// Settle is [Processor.HandleBatch] for callers that want to know at once what is settled: progress is called with the
// number of messages from the front that are, each time it has grown, by the goroutine that called Settle. Before Settle
// returns nil it was called with len(msgs). progress must be quick. Settle records no progress in the stores: see
// [Processor.NoteProgress].
func (p *Processor) Settle(ctx context.Context, msgs []*Message, progress func(settled int)) error {
	return p.newBatch(ctx, msgs, progress).settle()
}

// OrderKey returns what events must share for their order to matter: the key of the record, or the identity of the event
// if the record has none, so that copies of one event never run beside each other (rule 25). It is empty for a record
// with neither, which is bound to no order. Two records with equal order keys must not be in two calls of Settle at once.
func (p *Processor) OrderKey(m *Message) string {
	if m.Key != nil {
		return "k" + string(m.Key)
	}
	key := ""
	_ = guard(func() error { // what is wrong with the message is found when it is handled
		m, c, err := p.open(m)
		if err != nil {
			return err
		}
		b, _, err := p.routes.find(m)
		if err != nil || b == nil {
			return err
		}
		d := &task{message: m, copied: c, reading: reading{route: b}}
		if _, err := p.identify(d); err == nil {
			key = "e" + d.request.Key.String()
		}
		return nil
	})
	return key
}

// closeWait is how long Close waits for claims that were given up: a client of a database gives them up too, a moment later.
const closeWait = 5 * time.Second

// Close stops the renewal of leases. Call it when no HandleBatch is running any longer. Handlers that were abandoned and
// still hang are not waited for; Close returns an error that matches [ErrAbandoned] and counts them. Progress of a loop of one's own
// that is not recorded yet is recorded, in a second at most.
func (p *Processor) Close() error {
	if p.own != nil {
		p.writeProgress(context.Background(), true)
	}
	p.close()
	for _, l := range p.stores {
		l.renewer.Close()
		l.end(p)
	}
	if n := p.unanswered.wait(closeWait); n > 0 {
		p.log.Warn("calls of the store that were given up have still not returned", "calls", n)
	}
	p.producer.end(p)
	if n := p.abandonedNow.Load(); n > 0 {
		return fmt.Errorf("%w: %d still run", ErrAbandoned, n)
	}
	p.abandoned.Wait()
	return nil
}

// Stores returns the stores in use, each once: the ones to check before the first event.
func (p *Processor) Stores() []dedup.Store {
	stores := make([]dedup.Store, len(p.stores))
	for i, l := range p.stores {
		stores[i] = l.store
	}
	return stores
}

// Status is what a processor knows about its own health.
type Status struct {
	Down      []string // stores and producer that cannot be reached now
	Abandoned int      // handlers that hang and were left behind
	// MostlyUnhandled: more than half of the last 1,000 events were of types that nobody handles. A renamed type loses events
	// in silence otherwise (rule 47).
	MostlyUnhandled bool
}

// Status may be asked at any time.
func (p *Processor) Status() Status {
	s := Status{Abandoned: int(p.abandonedNow.Load()), MostlyUnhandled: p.unhandled.mostSkipped()}
	for _, l := range p.stores {
		if l.isDown.Load() {
			s.Down = append(s.Down, l.name)
		}
	}
	if p.producer.isDown.Load() {
		s.Down = append(s.Down, p.producer.name)
	}
	return s
}

// DeadLetterTopic returns where dead letters of a topic go. Those of a retry topic of the group go where those of its source
// topic do, also if they are no copies.
func (p *Processor) DeadLetterTopic(topic string) string {
	if source, _, ok := p.retryTopics.Source(topic); ok {
		topic = source
	}
	return p.cfg.DeadLetterTopic(topic)
}

// Assigned says that a partition has come to this process. Its first events are watched, since what killed the former
// owner may be among them (rule 18). A partition that was never announced counts as newly assigned once. If the loop calls
// [Processor.HandleBatch], a store that knows nothing of the partition forgets nothing until it is known how far it is consumed. Offsets
// that were not settled in an assignment before do not hold up its progress any longer.
func (p *Processor) Assigned(topic string, partition int32) {
	p.crashGuard.begin(topic, partition)
	p.deferredPartitions.begin(topic, partition)
	p.own.reset(topic, partition)
}
