package outbox_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// broker is the log that all relays of a test write to.
type broker struct {
	mu    sync.Mutex
	log   map[outbox.Aggregate][]string // IDs in the order in which they appear
	count map[string]int
	acked map[string]bool
}

func newBroker() *broker {
	return &broker{log: map[outbox.Aggregate][]string{}, count: map[string]int{}, acked: map[string]bool{}}
}

func idOf(m *idem.Message) string { return string(m.Headers[0].Value) }

func (b *broker) write(m *idem.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := outbox.Aggregate{Topic: m.Topic, Key: string(m.Key)}
	b.log[a] = append(b.log[a], idOf(m))
	b.count[idOf(m)]++
}

func (b *broker) ack(m *idem.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.acked[idOf(m)] = true
}

func (b *broker) isAcked(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acked[id]
}

// firsts are the IDs of an aggregate in the order of their first appearance.
func (b *broker) firsts(topic, key string) (ids []string) {
	for _, id := range b.all(topic, key) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (b *broker) all(topic, key string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log[outbox.Aggregate{Topic: topic, Key: key}])
}

func (b *broker) times(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count[id]
}

// fate is the outcome of a message.
type fate struct {
	wait    time.Duration // before anything is known
	written bool
	err     error
}

var (
	acknowledged = fate{wait: time.Millisecond, written: true}
	errBroker    = errors.New("broker is away")
)

// producer writes messages to the broker as fate decides. It notes violations of the contract by
// the relay.
type producer struct {
	broker *broker
	fate   func(m *idem.Message) fate // nil: all is acknowledged
	gate   func()                     // at the beginning and at the end of each call

	late sync.WaitGroup // messages that arrive after their call has returned

	mu       sync.Mutex
	calls    [][]string
	holding  map[string]bool
	problems []string
}

func newProducer(b *broker, fate func(m *idem.Message) fate) *producer {
	return &producer{broker: b, fate: fate, holding: map[string]bool{}}
}

func (p *producer) begin(msgs []*idem.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.holding) > 0 {
		p.problems = append(p.problems, "O-15: something is published while the fate of something else is not known")
	}
	var ids []string
	seen := map[outbox.Aggregate]bool{}
	for _, m := range msgs {
		a := outbox.Aggregate{Topic: m.Topic, Key: string(m.Key)}
		if a.Key != "" && seen[a] {
			p.problems = append(p.problems, "O-09: two of one aggregate at once: "+idOf(m))
		}
		if p.holding[idOf(m)] {
			p.problems = append(p.problems, "O-15: published again while its fate is not known: "+idOf(m))
		}
		seen[a], p.holding[idOf(m)] = true, true
		ids = append(ids, idOf(m))
	}
	p.calls = append(p.calls, ids)
}

func (p *producer) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.holding)
}

// rounds has the IDs of each call of the producer.
func (p *producer) rounds() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

func (p *producer) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	if p.gate != nil {
		p.gate()
		defer p.gate()
	}
	p.begin(msgs)
	errs := make([]error, len(msgs))
	var all sync.WaitGroup
	for i, m := range msgs {
		all.Go(func() { errs[i] = p.one(ctx, m) })
	}
	all.Wait()
	return errs
}

func (p *producer) one(ctx context.Context, m *idem.Message) error {
	f := acknowledged
	if p.fate != nil {
		f = p.fate(m)
	}
	known := make(chan error, 1)
	p.late.Go(func() {
		time.Sleep(f.wait)
		if f.written {
			p.broker.write(m)
		}
		p.mu.Lock()
		delete(p.holding, idOf(m))
		p.mu.Unlock()
		if f.err == nil {
			p.broker.ack(m)
		}
		known <- f.err
	})
	select {
	case err := <-known:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
