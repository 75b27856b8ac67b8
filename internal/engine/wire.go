package engine

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/identity"
	"github.com/idem-go/idem/internal/throttle"
)

// wire builds the look-up and binds handlers to stores.
func (p *Processor) wire(registered *Table) (problems []error) {
	p.routes.notFound = registered.NotFound
	problems = append(problems, registered.Problems...)
	if registered.NotFoundCalls > 1 {
		problems = append(problems, errors.New("NotFound was called more than once"))
	}
	if len(registered.Handlers) == 0 {
		problems = append(problems, errors.New("router has no handlers"))
	}
	if p.cfg.Replay != nil {
		p.routes.notFound = nil
	}
	for _, rt := range registered.Handlers {
		if rt.Mode == KeyOrdered {
			p.keyOrdered = append(p.keyOrdered, rt.Type)
		}
		if p.cfg.Replay != nil {
			rt = replayed(rt, *p.cfg.Replay, p.cfg.Scope)
		}
		fail := func(err error) {
			problems = append(problems, fmt.Errorf("%s: %q: %w", rt.Site, rt.Type, err))
		}
		for _, err := range rt.Problems {
			fail(err)
		}
		if p.cfg.Replay != nil {
			if err := checkScope(rt); err != nil {
				fail(err)
			}
		}
		b := &bound{
			Handler: rt, limits: throttle.NewLimits(rt.Concurrency, rt.Rate, rt.Per),
			breaker: throttle.NewBreaker(rt.BreakAfter, rt.BreakFor),
		}
		b.txLimit.Reset(rt.MaxBatch)
		b.deferredLimit.Reset(rt.MaxBatch)
		p.batches = p.batches || rt.Batch
		p.ordered = p.ordered || rt.Mode == KeyOrdered
		p.decodes = p.decodes || rt.Decoded
		if err := p.bind(b); err != nil {
			fail(err)
		}
		if err := p.checkTimes(rt); err != nil {
			fail(err)
		}
		if err := p.checkShadow(b); err != nil {
			fail(err)
		}
		if err := checkRunNoID(b); err != nil {
			fail(err)
		}
		if err := checkUnavailable(b); err != nil {
			fail(err)
		}
		if first := p.routes.add(b); first != nil {
			fail(
				fmt.Errorf(
					"already registered at %s: two handlers for one type need two consumer groups",
					first.Site,
				),
			)
		}
	}
	p.logForms()
	return problems
}

// checkTimes refuses a retention that ends before an event can be finished.
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
		return fmt.Errorf(
			"Retention %s is shorter than a lease, the retries and a rebalance together (%s)",
			rt.Retention, need,
		)
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
	if !reflect.ValueOf(store).Comparable() {
		return fmt.Errorf("store %T is not comparable: pass a pointer", store)
	}
	for _, access := range p.stores {
		if access.store == store {
			b.access = access
		}
	}
	if b.access == nil {
		b.access = newStoreAccess(store, &p.cfg, p.reporter, &p.unanswered)
		p.stores = append(p.stores, b.access)
	}
	if b.Mode == KeyOrdered {
		if _, ok := store.(dedup.Deferrer); !ok {
			return fmt.Errorf(
				"KeyOrdered keeps waiting events in the store, which %T cannot do: use pgstore or sqlstore, or RetryTopics",
				store,
			)
		}
	}
	if b.Bind == nil {
		return nil
	}
	tx, err := b.Bind(store)
	b.tx = tx
	return err
}

// checkShadow refuses handlers that shadow mode cannot run.
func (p *Processor) checkShadow(b *bound) error {
	switch {
	case !p.cfg.Shadow:
		return nil
	case b.Mode != Blocking:
		return errors.New(
			"RetryTopics and KeyOrdered need a store that is obeyed: without them while Config.Shadow is set",
		)
	case b.tx != nil && !b.tx.CanRunTx():
		return fmt.Errorf(
			"Config.Shadow needs a dedup.TxRunner, which %s is not", reflect.TypeOf(b.access.store),
		)
	}
	return nil
}

// checkRunNoID refuses handlers that cannot run without the store, or that promise more than they
// could keep.
func checkRunNoID(b *bound) error {
	switch {
	case b.NoID != idemtype.RunNoID:
		return nil
	case b.Mode != Blocking:
		return errors.New("WhenNoID(RunNoID) leaves later attempts without a record: " +
			"choose Blocking instead of RetryTopics or KeyOrdered, or another policy")
	case b.Bind == nil && b.atMostOnce():
		return errors.New("WhenNoID(RunNoID) runs a record at each delivery, " +
			"and DeadLetterUncertain promises at most one run: choose one of them")
	case b.tx != nil && !b.tx.CanRunTx():
		return fmt.Errorf("WhenNoID(RunNoID) needs a dedup.TxRunner, which %s is not",
			reflect.TypeOf(b.access.store))
	}
	return nil
}

// checkUnavailable refuses handlers that cannot run while the store is down, or that promise more
// than they could keep then. The other handlers with WhenUnavailable get a spare.
func checkUnavailable(b *bound) error {
	switch {
	case b.Unavailable == idemtype.UnavailablePolicy{}:
		return nil
	case b.Bind != nil:
		return errors.New("WhenUnavailable is for On and OnBatch: " +
			"a handler in a transaction cannot run without its store")
	case b.atMostOnce():
		return errors.New("WhenUnavailable lets duplicates run, " +
			"and DeadLetterUncertain promises at most one run: choose one of them")
	case b.Mode != Blocking:
		return errors.New("WhenUnavailable leaves later attempts without a record: " +
			"choose Blocking instead of RetryTopics or KeyOrdered, or wait for the store")
	}
	b.spare = &spare{}
	return nil
}

// logForms marks handlers of one type that find identities of different forms. Such identities then
// never meet.
func (p *Processor) logForms() {
	type kin struct {
		storeScope
		typ string
	}
	all := make(map[kin][]*bound)
	for b := range p.handlers {
		b.form = b.ID.Form
		at := kin{p.placeOf(b), b.Type}
		all[at] = append(all[at], b)
	}
	for _, kin := range all {
		for _, b := range kin {
			for _, other := range kin {
				b.mixed = b.mixed || b.form != identity.TaggedForm && other.form != b.form
			}
		}
	}
}
