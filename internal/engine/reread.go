package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// This file waits for events that cannot be read now. The functions that find type, ID, tenant and
// fingerprint, and the decoder, return errors. A mark on such an error means the same as on an
// error of a handler. The event then waits in place, without a claim. After an error without a
// mark, the message becomes a dead letter at once.
//
// A dead letter of an event without an identity leaves no record in the store (rule 6). An event
// that only the decoder refuses has a key and a content. Such an event is dead-lettered once, under
// its claim, and its copies are duplicates. A corrected copy differs in content and becomes a
// dead letter of its own.

// reread waits as the error of the last reading demands, and resolves the event again. An event
// that is not read again goes to an attempt or to the dead letters.
func (p *Processor) reread(ctx context.Context, t *task) error {
	if due := t.due(); due > 0 {
		return t.budget.wait(ctx, due, idemtype.ErrNotDue)
	}
	if t.err != nil {
		again, err := p.waitForReread(ctx, t, readingOutcome(t.err))
		if err != nil || !again {
			return cmp.Or(err, t.unhandledError())
		}
	}
	waited := t.reader
	began := time.Now()
	p.resolve(ctx, t)
	t.excludeWait(time.Since(began))
	// The decoder answers, or the event is given up.
	if waited != nil && t.destination != destReread {
		waited.up(ctx, began)
	}
	return t.unhandledError()
}

// waitForReread waits before the next reading. again is false if the event is not read again.
func (p *Processor) waitForReread(ctx context.Context, t *task, o outcome) (again bool, err error) {
	t.attempt = t.earlier + t.rereads + 1
	found := t.route
	if found == nil { // only the decision needs a policy
		t.route = &bound{Handler: &Handler{Settings: DefaultSettings()}}
	}
	p.judge(ctx, t, o, false)
	t.route = found
	if t.action.kind != actWait {
		t.readerLeft()
	}
	switch t.action.kind {
	case actRetry:
		t.rereads++
		p.notifyRetry(ctx, t, o)
		if err = sleep(ctx, t.action.delay); err == nil && found != nil {
			err = t.afford(ctx)
		}
	case actWait:
		err = p.waitForReader(ctx, t, o)
	case actDelayedRetry:
		if t.request.Key.ID != "" { // the store must record the next attempt
			t.refuseInAttempt(o)
			return false, nil
		}
		t.giveUp(o.class, o.err)
		return false, nil
	default:
		t.giveUp(o.class, o.err)
		return false, nil
	}
	return true, err
}

// waitForReader waits for a dependency of the functions that read the event.
func (p *Processor) waitForReader(ctx context.Context, t *task, o outcome) error {
	t.readerDown++
	if !p.readerDown(ctx, t, o.err) && t.readerDown == 1 {
		p.log.WarnContext(ctx,
			"event cannot be read while something it depends on is unavailable, waiting",
			append(messageAttrs(t.message, t.request.Key), "error", p.errorText(o.err))...)
	}
	err := t.waitOut(ctx, t.readerDown, fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err))
	if ctx.Err() != nil {
		t.readerLeft()
	}
	return err
}
