package idem

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// routes finds the handler of a message. Handlers with the same way to find a type share a look-up; the ways are tried
// in the order of registration.
type routes struct {
	groups    []routeGroup
	otherwise func(context.Context, *Message) error
}

type routeGroup struct {
	source *typeSource
	byType map[string]*bound
}

// bound is a route with the ledger it uses in this processor, and what the processor has learned about it.
type bound struct {
	*route
	ledger *ledger
	tx     txLedger
	limits *limits // nil: none
	size   groupSize
	queued groupSize // of events that were parked: they fail more often than others, who are not to pay for it
	pace   pace
	budget budget
}

// wire builds the look-up and binds handlers to ledgers.
func (p *Processor) wire(t *table) (problems []error) {
	p.routes.otherwise = t.otherwise
	if t.otherwises > 1 {
		problems = append(problems, errors.New("Otherwise was called more than once"))
	}
	if len(t.routes) == 0 {
		problems = append(problems, errors.New("router has no handlers"))
	}
	for _, rt := range t.routes {
		fail := func(err error) { problems = append(problems, fmt.Errorf("%s: %q: %w", rt.site, rt.typ, err)) }
		for _, err := range rt.problems {
			fail(err)
		}
		b := &bound{route: rt, limits: newLimits(&rt.settings)}
		b.size.limit.Store(int32(rt.maxBatch))
		b.queued.limit.Store(int32(rt.maxBatch))
		p.batches = p.batches || rt.batch
		p.ordered = p.ordered || rt.mode == keyOrdered
		if err := p.bind(b); err != nil {
			fail(err)
		}
		if err := p.checkTimes(rt); err != nil {
			fail(err)
		}
		if err := p.checkShadow(b); err != nil {
			fail(err)
		}
		if first := p.routes.add(b); first != nil {
			fail(fmt.Errorf("already registered at %s: two handlers for one type need two consumer groups", first.site))
		}
	}
	return problems
}

// checkTimes refuses a retention that ends before a live event can be finished: that is a mistake, while a short one is
// a choice.
func (p *Processor) checkTimes(rt *route) error {
	const rebalance = time.Minute
	need := p.cfg.Lease + rebalance
	if rt.retry.InPlace != Forever {
		need += rt.retry.InPlace
	}
	for _, d := range rt.delays {
		need += d
	}
	if rt.retention > 0 && rt.retention < need {
		return fmt.Errorf("Retention %s is shorter than a lease, the retries and a rebalance together (%s)", rt.retention, need)
	}
	return nil
}

// bind finds or adds the ledger of a route.
func (p *Processor) bind(b *bound) error {
	store := b.route.ledger
	if store == nil {
		store = p.cfg.Store
	}
	if store == nil {
		return errors.New("no ledger: set Config.Store or the option idem.Ledger")
	}
	if !reflect.TypeOf(store).Comparable() {
		return fmt.Errorf("ledger %T is not comparable: pass a pointer", store)
	}
	for _, l := range p.ledgers {
		if l.store == store {
			b.ledger = l
		}
	}
	if b.ledger == nil {
		b.ledger = newLedger(store)
		p.ledgers = append(p.ledgers, b.ledger)
	}
	if b.mode == keyOrdered {
		if _, ok := store.(dedup.Parker); !ok {
			return fmt.Errorf("KeyOrdered keeps waiting events in the ledger, which %T cannot do: use Postgres, or RetryTopics", store)
		}
	}
	if b.bind == nil {
		return nil
	}
	tx, err := b.bind(store)
	b.tx = tx
	return err
}

// add returns the handler that has the place already, if there is one.
func (r *routes) add(b *bound) (first *route) {
	for i := range r.groups {
		if g := &r.groups[i]; g.source == b.typ_() {
			if other, ok := g.byType[b.typ]; ok {
				return other.route
			}
			g.byType[b.typ] = b
			return nil
		}
	}
	r.groups = append(r.groups, routeGroup{source: b.typ_(), byType: map[string]*bound{b.typ: b}})
	return nil
}

func (b *bound) typ_() *typeSource { return b.settings.typ }

// find returns the handler of m, or the type that nobody handles. Where one source contradicts itself and no other one
// leads to a handler, that is an error.
func (r *routes) find(m *Message) (b *bound, typ string, err error) {
	found := false
	for _, g := range r.groups {
		t, findErr := g.source.find(m)
		switch {
		case findErr == nil:
			if b := g.byType[t]; b != nil {
				return b, t, nil
			}
			typ, found = t, true
		case err == nil || errors.Is(err, ErrNotFound):
			err = findErr
		}
	}
	if found && errors.Is(err, ErrNotFound) {
		err = nil
	}
	return nil, typ, err
}

// guard turns a panic of the user's functions that look into a message into an error: they run before the ledger knows of
// the event, so that nothing would ever stop it from killing one process after another (K-23).
func guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			stack := debug.Stack()
			err = &PanicError{Value: v, Stack: stack[:min(len(stack), 4<<10)]}
		}
	}()
	return fn()
}

// look finds out what message i is for, once.
func (b *batch) look(i int) *entry {
	e := &b.entries[i]
	if i < b.looked {
		return e
	}
	b.looked = i + 1
	b.p.resolve(e)
	e.pat = b.pat
	return e
}

// resolve finds the handler, the identity and the payload. What fails here never touches the ledger (rule 6).
func (p *Processor) resolve(e *entry) {
	m := e.m
	if m == nil {
		e.fate, e.err = forNothing, errors.New("message is nil")
		return
	}
	m, err := p.open(m)
	if err != nil {
		e.letter(ClassNotACopy, err)
		return
	}
	e.m = m
	var b *bound
	err = guard(func() (err error) { b, e.typ, err = p.routes.find(m); return err })
	switch {
	case m.Value == nil && (b == nil || !b.tombstones) && (err == nil || errors.Is(err, ErrNotFound)):
		e.fate = forNobody
	case err != nil:
		e.letter(classOfSource(err, ClassNoType), fmt.Errorf("event type: %w", err))
	case b == nil && p.routes.otherwise != nil:
		e.fate = forFallback
	case b == nil && m.copied != nil && m.copied.topic != "":
		e.letter(ClassNoType, fmt.Errorf("nobody handles the type %q any longer, and this is a copy for a later attempt", e.typ))
	case b == nil:
		e.fate = forNobody
	default:
		p.unhandled.note(false)
		e.fate, e.route, e.ledger, e.tx, e.claimed = forHandler, b, b.ledger, b.tx, b.tx == nil
		e.shadow = p.cfg.Shadow
		class := ClassUndecodable
		if err := guard(func() (err error) { class, err = p.identify(&e.delivery); return err }); err != nil {
			e.letter(class, err)
			return
		}
		if err := guard(func() (err error) { e.data, err = b.decode(m); return err }); err != nil {
			e.letter(ClassUndecodable, err)
		}
	}
}

func (e *entry) letter(class Class, err error) { e.fate, e.class, e.err = forLetter, class, err }

// identify makes the request to the ledger. What fails here never touches it (rule 6).
func (p *Processor) identify(d *delivery) (Class, error) {
	rt, m := d.route, d.m
	id, err := rt.id(m)
	if err != nil {
		return classOfSource(err, ClassNoID), fmt.Errorf("event ID: %w", err)
	}
	key := dedup.Key{Scope: rt.scope, Type: rt.typ, ID: id}
	if key.Scope == "" {
		key.Scope = p.cfg.Scope
	}
	if rt.tenant != nil {
		if key.Tenant, err = rt.tenant(m); err != nil {
			return classOfSource(err, ClassNoID), fmt.Errorf("tenant: %w", err)
		}
	}
	if err := key.Validate(); err != nil {
		return ClassNoID, err
	}
	d.id = id
	d.req = dedup.Request{Key: key, Origin: m.origin(), Retention: rt.retention, AnyAge: rt.tooOld == RunTooOld}
	d.remember(m.copied)
	if rt.fingerprint != nil {
		if d.req.Fingerprint, err = rt.fingerprint(m); err != nil {
			return ClassUndecodable, fmt.Errorf("fingerprint: %w", err)
		}
	}
	return "", nil
}

func classOfSource(err error, otherwise Class) Class {
	if errors.Is(err, ErrAmbiguous) {
		return ClassAmbiguous
	}
	return otherwise
}

// deadLetter gives up a message that has no key.
func (p *Processor) deadLetter(ctx context.Context, pat *patience, m *Message, class Class, err error) error {
	now := time.Now()
	f := failure{class: class, err: err, first: now, last: now}
	if c := m.copied; c != nil { // the ledger knows its event, and lets nothing run but this copy
		f.generation, f.retry = c.position.Generation, c.position.Retry
	}
	return p.sendLetter(ctx, pat, m, f)
}

// runOtherwise calls the router's fallback, with the default retries.
func (p *Processor) runOtherwise(ctx context.Context, m *Message, pat *patience) (came Settlement, err error) {
	s := newSettings()
	d := &delivery{m: m, pat: pat, claimed: true, route: &bound{route: &route{settings: s}}}
	d.route.call = func(ctx context.Context, _ any, _ []input) error { return p.routes.otherwise(ctx, m) }
	for d.attempt = 1; ; {
		hard, release := p.stopContext(ctx, true)
		o := p.run(hard, d, nil, nil, noClaims)
		release()
		if o.meaning == succeeded {
			return SettledFallback, nil
		}
		d.failedNow()
		var err error
		switch d.decide(o) {
		case actLetter:
			return SettledDeadLetter, p.sendLetter(ctx, pat, m, d.failure(o))
		case actRetry:
			d.attempt++
			err = sleep(ctx, d.delay)
		case actWait:
			d.outages++
			err = pat.wait(ctx, outageWait(d.outages), fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err))
		default:
			return came, left(ctx, d, o)
		}
		if err != nil {
			return came, err
		}
	}
}

// probation remembers which partitions came lately.
type probation struct {
	mu   sync.Mutex
	left map[probationKey]int
}

type probationKey struct {
	topic     string
	partition int32
}

// probationEvents is how many events of a partition must succeed before it is trusted again.
const probationEvents = 16

func (p *probation) begin(topic string, partition int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, probationKey{topic, partition})
}

// count returns how many events are to be watched still, after taking off n.
func (p *probation) count(m *Message, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == nil {
		p.left = make(map[probationKey]int)
	}
	key := probationKey{m.Topic, m.Partition}
	now, ok := p.left[key]
	if !ok {
		now = probationEvents
	}
	now = max(now-n, 0)
	p.left[key] = now
	return now
}

func (p *Processor) onProbation(m *Message) bool { return p.probation.count(m, 0) > 0 }

// trusted notes a success.
func (p *Processor) trusted(m *Message) { p.probation.count(m, 1) }
