package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/mark"
)

// This file is about events that cannot be read now, or ever: the functions that find type, ID, tenant and fingerprint, and the
// decoder, return errors too. A mark on such an error means what it means on an error of a handler, and the event waits in its
// place, without a claim. An error without a mark is the event's fault, and dead-letters it at once.
//
// A dead letter from here leaves no record in the store (rule 6): a record that cannot be read must not use up the ID for a good
// copy of its event. The one exception is an event that the store waits for already, at a position that nothing else can run.

// unread notes why an event cannot be read.
func (t *task) unread(class idemtype.Class, err error) {
	t.class, t.err = class, err
	if mark.Label(err) != "" {
		t.destination = destReread
		return
	}
	t.giveUp(class, err)
}

// giveUp lets the event be dead-lettered; the attempt records that if the store waits for it.
func (t *task) giveUp(class idemtype.Class, err error) {
	t.identifyAsDeferred()
	if !t.shadow && t.request.Key.ID != "" && (t.request.Position != dedup.Position{} || t.deferred != nil) {
		t.refuseInAttempt(outcome{meaning: permanent, class: class, err: err})
		return
	}
	t.deadLetter(class, err)
}

// refuseInAttempt lets the attempt end the event by o, instead of running its handler.
func (t *task) refuseInAttempt(o outcome) {
	t.destination, t.isolated, t.refusal = destHandler, true, o
}

// readingOutcome is what an error means of a function that reads an event. Nothing was run, so there is no doubt.
func readingOutcome(err error) outcome {
	if mark.Label(err) == "" {
		return outcome{meaning: permanent, class: idemtype.ClassUndecodable, err: err}
	}
	o := classify(nil, err)
	o.unbegun = true
	return o
}

// reread waits as the error of the last reading says, and reads the event again; or leaves it to an attempt, or to the dead letters.
func (b *batch) reread(t *task) error {
	if due := t.due(); due > 0 {
		return b.budget.wait(b.ctx, due, idemtype.ErrNotDue)
	}
	if t.err != nil {
		if again, err := b.waitForReread(t, readingOutcome(t.err)); err != nil || !again {
			return cmp.Or(err, t.unhandledError())
		}
	}
	b.deferredVersion = ^uint64(0) // what is behind it was not looked into
	b.p.resolve(t)
	t.budget = b.budget
	return t.unhandledError()
}

// waitForReread does what o asks for before the next reading. It reports whether there is to be one.
func (b *batch) waitForReread(t *task, o outcome) (again bool, err error) {
	p := b.p
	found := t.route
	if found == nil {
		t.route = &bound{Handler: &Handler{Settings: DefaultSettings()}}
		defer func() { t.route = nil }()
	}
	t.attempt = t.earlier + t.rereads + 1
	p.judge(b.ctx, t, o, false)
	switch t.action.kind {
	case actRetry:
		t.rereads++
		p.notifyRetry(b.ctx, t, o)
		if err = sleep(b.ctx, t.action.delay); err == nil && found != nil {
			err = p.afford(b.ctx, t)
		}
	case actWait:
		err = b.waitForReader(t, o)
	case actDelayedRetry:
		if t.request.Key.ID != "" { // the store has to know where it goes on
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

// waitForReader waits for what the reading of an event depends on.
func (b *batch) waitForReader(t *task, o outcome) error {
	t.readerDown++
	if t.readerDown == 1 {
		b.p.log.WarnContext(b.ctx, "event cannot be read while something it depends on is unavailable, waiting",
			append(b.p.messageAttrs(t.message, t.request.Key), "error", b.p.errorText(o.err))...)
	}
	return b.p.waitOut(b.ctx, t, t.readerDown, fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err))
}

// waitOut waits before the given try to reach what is down. The time does not count as the event's.
func (p *Processor) waitOut(ctx context.Context, t *task, try int, reason error) error {
	began := time.Now()
	err := t.budget.wait(ctx, outageWait(try), reason)
	t.excludeWait(time.Since(began))
	return err
}
