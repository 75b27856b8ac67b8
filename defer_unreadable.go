package idem

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// identifyAsDeferred gives an event that cannot be identified any longer the key and the position at which it was deferred, so that it
// ends its record and blocks its queue like any other dead event.
func (e *task) identifyAsDeferred() {
	if e.deferred == nil || e.route == nil || e.request.Key.ID != "" {
		return
	}
	key := e.deferred.head.Key
	e.id, e.request = key.ID, dedup.Request{Key: key, Origin: e.message.origin(), Retention: e.route.retention, AnyAge: true}
	e.remember(e.message.copied)
}

// stuck returns why a deferred event stays at the head of its queue: no handler is found for it, so that nobody can say what becomes
// of it, or where its record is.
func (e *task) stuck() error {
	switch {
	case e.deferred == nil:
	case e.destination == forFallback || e.destination == forNobody:
		return fmt.Errorf("nobody handles the type %q any longer", e.deferred.head.Key.Type)
	case e.destination == forDeadLetter:
		return fmt.Errorf("no handler can be found: %w", e.err)
	}
	return nil
}

// noHandler returns why there is no handler for a deferred event, if that can be said without running anything. A function of the
// user that cannot say now is asked again when the event runs.
func (p *Processor) noHandler(deferred *dedup.Deferred) error {
	m, err := fromDeferred(*deferred)
	if err != nil {
		return err
	}
	var b *bound
	err = guard(func() (err error) { b, _, err = p.routes.find(m); return err })
	switch {
	case b != nil || ErrorMark(err) != "":
		return nil
	case err != nil:
		return fmt.Errorf("no handler can be found: %w", err)
	}
	return fmt.Errorf("nobody handles the type %q any longer", deferred.Key.Type)
}

// giveUpUnreadable dead-letters an event of a transactional handler, unless the store says that nothing is left to be done: it may
// have been given up or handled before.
func (p *Processor) giveUpUnreadable(ctx context.Context, d *task, o outcome) (step, error) {
	if look := d.access.look(true); look != nil {
		var a [1]dedup.Answer
		err := p.change(ctx, d.budget, d.access, "look before giving up", func(ctx context.Context) error {
			return look(ctx, []dedup.Request{d.request}, a[:])
		})
		if err != nil {
			return step{}, err
		}
		if a[0].Verdict != 0 {
			return p.settleAnswer(ctx, d, a[0], verdict(a[0], &d.route.policy, &d.attempts, d.facts(a[0])))
		}
	}
	return p.finishRefused(ctx, d, o)
}
