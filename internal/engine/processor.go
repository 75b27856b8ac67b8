package engine

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
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/observe"
)

// Config has the fields of Config of package idem, which documents them.
type Config struct {
	Store           dedup.Store
	Scope           string
	Group           string
	Lease           time.Duration
	StoreTimeout    time.Duration
	BusyWait        time.Duration
	Grace           time.Duration
	Producer        idemtype.Producer
	DeadLetterTopic func(topic string) string
	Shadow          bool
	Observers       []observe.Observer
	Logger          *slog.Logger
	ErrorText       func(error) string
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
		c.ErrorText = safetext.Text
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

// Processor is the engine behind Processor of package idem.
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

// New returns a processor, or all mistakes in the configuration and the handlers, joined.
func New(handlers *Table, cfg Config) (*Processor, error) {
	cfg = cfg.withDefaults()
	p := &Processor{cfg: cfg, log: cfg.Logger, producer: health{name: "producer"}, retryTopics: deadletter.RetryTopicsOf(cfg.Group)}
	problems := cfg.validate()
	for _, o := range cfg.Observers {
		if !p.obs.add(o) {
			problems = append(problems, fmt.Errorf("observer %T implements no observer interface", o))
		}
	}
	if handlers == nil {
		return nil, errors.Join(append(problems, errors.New("router is nil"))...)
	}
	problems = append(problems, p.wire(handlers)...)
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

// Handle is documented in package idem, as are the other exported methods.
func (p *Processor) Handle(ctx context.Context, m *idemtype.Message) error {
	_, err := p.HandleBatch(ctx, []*idemtype.Message{m})
	return err
}

// maxAbandoned is how many handlers may hang behind before nothing more is begun (rule 48).
const maxAbandoned = 64

// HandleBatch settles messages in order, and records the progress of partitions.
func (p *Processor) HandleBatch(ctx context.Context, msgs []*idemtype.Message) (settled int, err error) {
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

// Settle settles messages in order.
func (p *Processor) Settle(ctx context.Context, msgs []*idemtype.Message, progress func(settled int)) error {
	return p.newBatch(ctx, msgs, progress).settle()
}

// OrderKey returns the Kafka key, or the identity of an event without one.
func (p *Processor) OrderKey(m *idemtype.Message) string {
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

// Close ends the renewal of leases and records the progress.
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
		return fmt.Errorf("%w: %d still run", idemtype.ErrAbandoned, n)
	}
	p.abandoned.Wait()
	return nil
}

// Stores returns the stores of all handlers, each once.
func (p *Processor) Stores() []dedup.Store {
	stores := make([]dedup.Store, len(p.stores))
	for i, l := range p.stores {
		stores[i] = l.store
	}
	return stores
}

// Status is the health of a processor.
type Status struct {
	Down            []string
	Abandoned       int
	MostlyUnhandled bool
}

// Status returns the present health.
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

// DeadLetterTopic returns the dead-letter topic for a topic.
func (p *Processor) DeadLetterTopic(topic string) string {
	if source, _, ok := p.retryTopics.Source(topic); ok {
		topic = source
	}
	return p.cfg.DeadLetterTopic(topic)
}

// Assigned notes that a partition was assigned to this process.
func (p *Processor) Assigned(topic string, partition int32) {
	p.crashGuard.begin(topic, partition)
	p.deferredPartitions.begin(topic, partition)
	p.own.reset(topic, partition)
}
