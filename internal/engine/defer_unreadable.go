package engine

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/mark"
)

// identifyAsDeferred gives an event that cannot be identified any longer the key and the position at which it was deferred, so that it
// ends its record and blocks its queue like any other dead event.
func (t *task) identifyAsDeferred() {
	if t.deferred == nil || t.route == nil || t.request.Key.ID != "" {
		return
	}
	key := t.deferred.head.Key
	t.id, t.request = key.ID, dedup.Request{Key: key, Origin: t.message.Origin(), Retention: t.route.Retention, AnyAge: true}
	t.remember(t.copied)
}

// unhandledError returns why a deferred event stays at the head of its queue: no handler is found for it, so that nobody can say what becomes
// of it, or where its record is.
func (t *task) unhandledError() error {
	switch {
	case t.deferred == nil:
	case t.destination == destFallback || t.destination == destUnhandled:
		return fmt.Errorf("nobody handles the type %q any longer", t.deferred.head.Key.Type)
	case t.destination == destDeadLetter:
		return fmt.Errorf("no handler can be found: %w", t.err)
	}
	return nil
}

// noHandler returns why there is no handler for a deferred event, if that can be said without running anything. A function of the
// user that cannot say now is asked again when the event runs.
func (p *Processor) noHandler(deferred *dedup.Deferred) error {
	m, _, err := fromDeferred(*deferred)
	if err != nil {
		return err
	}
	var b *bound
	err = guard(func() (err error) { b, _, err = p.routes.find(m); return err })
	switch {
	case b != nil || mark.Label(err) != "":
		return nil
	case err != nil:
		return fmt.Errorf("no handler can be found: %w", err)
	}
	return fmt.Errorf("nobody handles the type %q any longer", deferred.Key.Type)
}

// giveUpUnreadable dead-letters an event of a transactional handler, unless the store says that nothing is left to be done: it may
// have been given up or handled before.
func (p *Processor) giveUpUnreadable(ctx context.Context, t *task, o outcome) (step, error) {
	if look := t.access.look(true); look != nil {
		var a [1]dedup.Answer
		err := p.change(ctx, t.budget, t.access, "look before giving up", func(ctx context.Context) error {
			return look(ctx, []dedup.Request{t.request}, a[:])
		})
		if err != nil {
			return step{}, err
		}
		if a[0].Verdict != 0 {
			return p.settleAnswer(ctx, t, a[0], verdict(a[0], &t.route.Policy, &t.attempts, t.facts(a[0])))
		}
	}
	return p.finishRefused(ctx, t, o)
}
