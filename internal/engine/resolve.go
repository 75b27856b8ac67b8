package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/identity"
	"github.com/idem-go/idem/internal/mark"
	"github.com/idem-go/idem/internal/throttle"
	"github.com/idem-go/idem/observe"
)

// routes finds the handler of a message. Handlers with the same way to find a type share a look-up; the ways are tried
// in the order of registration.
type routes struct {
	groups   []routeGroup
	notFound func(context.Context, *idemtype.Message) error
}

type routeGroup struct {
	source *TypeSource
	byType map[string]*bound
}

// bound is a route with the store it uses in this processor, and what the processor has learned about it.
type bound struct {
	*Handler
	access        *storeAccess
	tx            TxStore
	limits        *throttle.Limits // nil: none
	txLimit       throttle.AdaptiveLimit
	deferredLimit throttle.AdaptiveLimit // of events that were deferred: they fail more often than others, who are not to pay for it
	ahead         throttle.ClaimAhead
	budget        throttle.RetryBudget
	form          identity.Form // of its identities
	mixed         bool          // another handler of its type finds identities of another form

	conflicts conflictLog
}

// wire builds the look-up and binds handlers to stores.
func (p *Processor) wire(registered *Table) (problems []error) {
	p.routes.notFound = registered.NotFound
	if registered.NotFoundCalls > 1 {
		problems = append(problems, errors.New("NotFound was called more than once"))
	}
	if len(registered.Handlers) == 0 {
		problems = append(problems, errors.New("router has no handlers"))
	}
	for _, rt := range registered.Handlers {
		fail := func(err error) { problems = append(problems, fmt.Errorf("%s: %q: %w", rt.Site, rt.Type, err)) }
		for _, err := range rt.Problems {
			fail(err)
		}
		b := &bound{Handler: rt, limits: throttle.NewLimits(rt.Concurrency, rt.Rate, rt.Per)}
		b.txLimit.Reset(rt.MaxBatch)
		b.deferredLimit.Reset(rt.MaxBatch)
		p.batches = p.batches || rt.Batch
		p.ordered = p.ordered || rt.Mode == KeyOrdered
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
			fail(fmt.Errorf("already registered at %s: two handlers for one type need two consumer groups", first.Site))
		}
	}
	p.logForms()
	return problems
}

// checkTimes refuses a retention that ends before a live event can be finished: that is a mistake, while a short one is
// a choice.
func (p *Processor) checkTimes(rt *Handler) error {
	const rebalance = time.Minute
	need := p.cfg.Lease + rebalance
	if rt.Retry.InPlace != idemtype.Forever {
		need += rt.Retry.InPlace
	}
	for _, d := range rt.Delays {
		need += d
	}
	if rt.Retention > 0 && rt.Retention < need {
		return fmt.Errorf("Retention %s is shorter than a lease, the retries and a rebalance together (%s)", rt.Retention, need)
	}
	return nil
}

// bind finds or adds the store of a route.
func (p *Processor) bind(b *bound) error {
	store := b.Handler.Store
	if store == nil {
		store = p.cfg.Store
	}
	if store == nil {
		return errors.New("no store: set Config.Store or the option idem.Store")
	}
	if !reflect.TypeOf(store).Comparable() {
		return fmt.Errorf("store %T is not comparable: pass a pointer", store)
	}
	for _, access := range p.stores {
		if access.store == store {
			b.access = access
		}
	}
	if b.access == nil {
		b.access = newStoreAccess(store)
		p.stores = append(p.stores, b.access)
	}
	if b.Mode == KeyOrdered {
		if _, ok := store.(dedup.Deferrer); !ok {
			return fmt.Errorf("KeyOrdered keeps waiting events in the store, which %T cannot do: use Postgres, or RetryTopics", store)
		}
	}
	if b.Bind == nil {
		return nil
	}
	tx, err := b.Bind(store)
	b.tx = tx
	return err
}

// add returns the handler that has the place already, if there is one.
func (r *routes) add(b *bound) (first *Handler) {
	for i := range r.groups {
		if g := &r.groups[i]; g.source == b.source() {
			if other, ok := g.byType[b.Type]; ok {
				return other.Handler
			}
			g.byType[b.Type] = b
			return nil
		}
	}
	r.groups = append(r.groups, routeGroup{source: b.source(), byType: map[string]*bound{b.Type: b}})
	return nil
}

func (b *bound) source() *TypeSource { return b.Settings.Source }

// find returns the handler of m, or the type that nobody handles. Where one source contradicts itself and no other one
// leads to a handler, that is an error.
func (r *routes) find(m *idemtype.Message) (b *bound, typ string, err error) {
	found := false
	for _, g := range r.groups {
		t, findErr := g.source.Find(m)
		switch {
		case findErr == nil:
			if b := g.byType[t]; b != nil {
				return b, t, nil
			}
			typ, found = t, true
		case !errors.Is(findErr, idemtype.ErrNotFound) && mark.Label(findErr) != "": // nobody knows where it leads to
			return nil, "", findErr
		case err == nil || errors.Is(err, idemtype.ErrNotFound) && !errors.Is(err, identity.ErrNotJSON):
			err = findErr
		}
	}
	if found && errors.Is(err, idemtype.ErrNotFound) {
		err = nil
	}
	return nil, typ, err
}

// guard turns a panic of the user's functions that look into a message into an error: they run before the store knows of
// the event, so that nothing would ever stop it from killing one process after another (K-23).
func guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
		err = userErr(err)
	}()
	return fn()
}

// resolve finds out what message i is for, once.
func (b *batch) resolve(i int) *task {
	t := &b.tasks[i]
	if i < b.resolved {
		return t
	}
	b.resolved = i + 1
	b.p.resolve(t)
	t.budget = b.budget
	return t
}

// resolve finds the handler, the identity and the payload. What fails here never touches the store (rule 6). It may be called
// again for an event that could not be read.
func (p *Processor) resolve(t *task) {
	if t.message == nil {
		t.destination, t.err = destNoMessage, errors.New("message is nil")
		return
	}
	if t.copied == nil {
		m, c, err := p.open(t.message)
		if err != nil {
			t.deadLetter(idemtype.ClassNotACopy, err)
			return
		}
		t.message, t.copied = m, c
	}
	m := t.message
	t.destination, t.err, t.route, t.request = 0, nil, nil, dedup.Request{}
	var b *bound
	err := guard(func() (err error) { b, t.typ, err = p.routes.find(m); return err })
	moved := t.copied != nil && t.copied.topic != ""
	awaited := moved || t.copied != nil && b != nil // the store waits for it
	tombstone := m.Value == nil && (b == nil || !b.Tombstones)
	switch {
	case tombstone && !awaited && (err == nil || errors.Is(err, idemtype.ErrNotFound) && mark.Label(err) == ""):
		t.destination = destUnhandled
	case err != nil:
		t.unread(classOfSource(err, idemtype.ClassNoType), fmt.Errorf("event type: %w", err))
	case b == nil && p.routes.notFound != nil && !tombstone:
		t.destination = destFallback
	case b == nil && moved:
		t.deadLetter(idemtype.ClassNoType, fmt.Errorf("nobody handles the type %q any longer, and this is a copy for a later attempt", t.typ))
	case b == nil:
		t.destination = destUnhandled
	default:
		p.unhandled.note(false)
		t.destination, t.route, t.access, t.tx, t.claimed = destHandler, b, b.access, b.tx, b.tx == nil
		t.shadow = p.cfg.Shadow
		class := idemtype.ClassUndecodable
		if err := guard(func() (err error) { class, err = p.identify(t); return err }); err != nil {
			t.unread(class, err)
			return
		}
		t.read()
	}
}

// read decodes the value, if the time for that has come.
func (t *task) read() {
	switch {
	case t.due() > 0:
		t.destination = destReread
	case time.Until(t.notBefore()) > 0 && !t.shadow: // the attempt reschedules it
		t.isolated = true
	case t.message.Value == nil && !t.route.Tombstones:
		t.giveUp(idemtype.ClassUndecodable, errors.New("its handler takes no tombstones any longer, and this is a copy for a later attempt"))
	default:
		if err := t.decode(); err != nil {
			t.unread(idemtype.ClassUndecodable, err)
		}
	}
}

func (t *task) decode() error {
	err := guard(func() (err error) { t.data, err = t.route.Decode(t.message); return err })
	if err != nil {
		t.data = nil
	}
	return err
}

func (t *task) deadLetter(class idemtype.Class, err error) {
	t.destination, t.class, t.err = destDeadLetter, class, err
}

// identify makes the request to the store. What fails here never touches it (rule 6).
func (p *Processor) identify(t *task) (idemtype.Class, error) {
	rt, m := t.route, t.message
	id, err := rt.ID.Find(m)
	if err != nil {
		return classOfSource(err, idemtype.ClassNoID), fmt.Errorf("event ID: %w", err)
	}
	if rt.mixed {
		id = identity.Tagged(id, rt.form)
	}
	t.id = id
	key := dedup.Key{Scope: rt.Scope, Type: rt.Type, ID: id}
	if key.Scope == "" {
		key.Scope = p.cfg.Scope
	}
	if rt.Tenant.Find != nil {
		if key.Tenant, err = rt.Tenant.Find(m); err != nil {
			return classOfSource(err, idemtype.ClassNoID), fmt.Errorf("tenant: %w", err)
		}
	}
	if err := key.Validate(); err != nil {
		return idemtype.ClassNoID, err
	}
	// The engine itself deferred a deferred event, after the store was asked whether it is too old: it may wait for any time.
	anyAge := rt.TooOld == idemtype.RunTooOld || t.deferred != nil
	t.request = dedup.Request{Key: key, Origin: m.Origin(), Retention: rt.Retention, AnyAge: anyAge}
	t.remember(t.copied)
	if t.request.Fingerprint, err = rt.compared(m); err != nil {
		return idemtype.ClassUndecodable, fmt.Errorf("fingerprint: %w", err)
	}
	return "", nil
}

// compared is what copies of m are compared by: the fields that [Fingerprint] names, else all of the value.
func (s *Settings) compared(m *idemtype.Message) (dedup.Fingerprint, error) {
	switch {
	case s.Fingerprint != nil:
		return s.Fingerprint(m)
	case s.NoContentCheck:
		return dedup.Fingerprint{}, nil
	default:
		return dedup.Checksum(m.Value), nil
	}
}

func classOfSource(err error, otherwise idemtype.Class) idemtype.Class {
	switch {
	case errors.Is(err, idemtype.ErrAmbiguous):
		return idemtype.ClassAmbiguous
	case errors.Is(err, identity.ErrNotJSON):
		return idemtype.ClassNotJSON
	}
	return otherwise
}

// deadLetterTask gives up a message that never comes to the store. Its dead letter has the key of the event, if that is known. A copy for a
// later attempt is the exception: the store waits for it, so the dead letter has its position instead, to which it is replayed.
func (p *Processor) deadLetterTask(ctx context.Context, t *task) error {
	f := p.failure(t, outcome{class: t.class, err: t.err})
	if c := t.copied; c != nil {
		f.Position = c.Position
	}
	if f.Position.Retry > 0 {
		f.Key = dedup.Key{}
	}
	if f.Key.ID == "" {
		f.ID, f.Type = t.hints()
	}
	return p.publishDeadLetter(ctx, t.budget, f)
}

// hints are what can be said of an event without an identity: what was found before something else was not, or what its record
// says in the usual places, if no handler says where to look.
func (t *task) hints() (id, typ string) {
	id, typ = t.id, t.typ
	if t.route != nil {
		typ = t.route.Type
	}
	if c := t.copied; c != nil && c.Key.ID != "" {
		id, typ = cmp.Or(id, c.Key.ID), cmp.Or(typ, c.Key.Type)
	}
	if id == "" && t.route == nil {
		id, _ = usualID.Find(t.message)
	}
	if typ == "" && t.class == idemtype.ClassNotACopy {
		typ, _ = usualType.Find(t.message)
	}
	if (dedup.Key{ID: id}).Validate() != nil {
		id = ""
	}
	if (dedup.Key{ID: "-", Type: typ}).Validate() != nil {
		typ = ""
	}
	return id, typ
}

var usualID, usualType = identity.StandardID(), identity.StandardType()

// runNotFound calls the router's fallback, with the default retries.
func (p *Processor) runNotFound(ctx context.Context, m *idemtype.Message, budget *waitBudget) (came observe.Settlement, err error) {
	t := &task{message: m, budget: budget, reading: reading{claimed: true, route: &bound{Handler: &Handler{Settings: DefaultSettings()}}}}
	t.route.Call = func(ctx context.Context, _ any, _ []Input) error { return p.routes.notFound(ctx, m) }
	for waits := 0; ; {
		t.attempt = t.failures + 1
		hard, release := p.stopContext(ctx, true)
		o := p.run(hard, t, nil, nil, noClaims)
		release()
		if o.meaning == succeeded {
			return observe.SettledFallback, nil
		}
		p.judge(ctx, t, o, false)
		s, err := p.finish(ctx, ctx, t, o, unrecorded{})
		switch {
		case s.settled || err != nil:
			return t.settlement, err
		case s.outage != nil:
			waits++
			err = budget.wait(ctx, outageWait(waits), s.outage)
		default:
			err = sleep(ctx, s.sleep)
		}
		if err != nil {
			return t.settlement, err
		}
	}
}

// crashGuard remembers which partitions came lately.
type crashGuard struct {
	mu   sync.Mutex
	left map[guardKey]int
}

type guardKey struct {
	topic     string
	partition int32
}

// guardedEvents is how many events of a partition must succeed before it is trusted again.
const guardedEvents = 16

func (p *crashGuard) begin(topic string, partition int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, guardKey{topic, partition})
}

// count returns how many events are to be watched still, after taking off n.
func (p *crashGuard) count(m *idemtype.Message, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == nil {
		p.left = make(map[guardKey]int)
	}
	key := guardKey{m.Topic, m.Partition}
	now, ok := p.left[key]
	if !ok {
		now = guardedEvents
	}
	now = max(now-n, 0)
	p.left[key] = now
	return now
}

func (p *Processor) guarded(m *idemtype.Message) bool { return p.crashGuard.count(m, 0) > 0 }

// noteEnd notes a success.
func (p *Processor) noteEnd(m *idemtype.Message) { p.crashGuard.count(m, 1) }
