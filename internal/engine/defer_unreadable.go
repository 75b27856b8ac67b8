package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/mark"
)

// noHandler returns the reason why a deferred event has no handler. An unavailable function of the
// user is no such reason, because the function is called again when the event runs.
func (p *Processor) noHandler(deferred *dedup.Deferred) error {
	m, _, err := fromDeferred(*deferred)
	if err != nil {
		return err
	}
	var b *bound
	err = guard(func() (err error) { b, _, err = p.routes.find(decoded.Known(nil), m); return err })
	switch {
	case b != nil || mark.Label(err) != "" || errors.Is(err, decoded.ErrLookUp):
		return nil
	case err != nil:
		return fmt.Errorf("no handler can be found: %w", err)
	}
	return fmt.Errorf("no handler is registered for the type %q", deferred.Key.Type)
}

// giveUpUnreadable publishes the dead letter of an unreadable event of a transactional handler. If
// the store knows the event as dead or done, that answer has precedence.
func (p *Processor) giveUpUnreadable(
	ctx context.Context, t *task, o outcome,
) (attemptResult, error) {
	if look := t.access.look(true); look != nil {
		var a [1]dedup.Answer
		err := t.access.repeatLook(
			ctx,
			t.budget,
			"look before giving up",
			func(ctx context.Context) error {
				return look(ctx, []dedup.Request{t.request}, a[:])
			},
		)
		if err != nil {
			return attemptResult{}, err
		}
		if a[0].Verdict != 0 {
			return p.settleAnswer(
				ctx, t, a[0], verdict(a[0], &t.route.Policy, &t.attempts, t.facts(a[0])),
			)
		}
	}
	return p.finishRefused(ctx, t, o)
}
