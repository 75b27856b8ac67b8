package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// New returns a processor, or all mistakes in the configuration and the handlers, joined.
func New(handlers *Table, cfg Config) (*Processor, error) {
	cfg = cfg.withDefaults()
	r := newReporter(&cfg)
	p := &Processor{
		reporter: r, cfg: cfg, producer: health{name: "producer", report: r},
		copies: copies{group: cfg.Group, topics: deadletter.RetryTopicsOf(cfg.Group)},
	}
	problems := cfg.validate()
	for _, o := range cfg.Observers {
		if !p.obs.Add(o) {
			problems = append(
				problems, fmt.Errorf("observer %T implements no observer interface", o),
			)
		}
	}
	if handlers == nil {
		return nil, errors.Join(append(problems, errors.New("router is nil"))...)
	}
	problems = append(problems, p.wire(handlers)...)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	p.own = newOwnProgress(p.Stores())
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

// HandleBatch settles messages in order, and records the progress of partitions.
func (p *Processor) HandleBatch(
	ctx context.Context, msgs []*idemtype.Message,
) (settled int, err error) {
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
func (p *Processor) Settle(
	ctx context.Context, msgs []*idemtype.Message, progress func(settled int),
) error {
	return unlessStopped(ctx, p.newBatch(ctx, msgs, progress).settle())
}

// closeWait limits how long Close waits for abandoned calls of the store.
const closeWait = 5 * time.Second

// Close ends the renewal of leases and records the progress.
func (p *Processor) Close() error {
	if p.own != nil {
		p.writeProgress(context.Background(), true)
	}
	p.close()
	for _, l := range p.stores {
		l.renewer.Close()
		l.close()
	}
	if n := p.unanswered.wait(closeWait); n > 0 {
		p.log.Warn("calls of the store that were given up have still not returned", "calls", n)
	}
	p.producer.close()
	p.closeBreakers()
	p.readers.each((*health).close)
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
	OpenBreakers    []string
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
	for _, b := range p.openBreakers() {
		s.OpenBreakers = append(s.OpenBreakers, b.Name)
	}
	slices.Sort(s.OpenBreakers)
	p.readers.each(func(h *health) {
		if h.isDown.Load() {
			s.Down = append(s.Down, h.name)
		}
	})
	return s
}

// Assigned notes that a partition was assigned to this process.
func (p *Processor) Assigned(topic string, partition int32) {
	p.crashGuard.begin(topic, partition)
	p.deferredPartitions.begin(topic, partition)
	p.own.reset(topic, partition)
}

// DueIn returns how long m must still wait.
func (p *Processor) DueIn(m *idemtype.Message) time.Duration { return p.copies.due(m) }
