package idem

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file is about events that cannot be read now, or ever: the functions that find type, ID, tenant and fingerprint, and the
// decoder, return errors too. A mark on such an error means what it means on an error of a handler, and the event waits in its
// place, without a claim. An error without a mark is the event's fault, and dead-letters it at once.
//
// A dead letter from here leaves no record in the store (rule 6): a record that cannot be read must not use up the ID for a good
// copy of its event. The one exception is an event that the store waits for already, at a position that nothing else can run.

// unread notes why an event cannot be read.
func (e *task) unread(class Class, err error) {
	e.class, e.err = class, err
	if ErrorMark(err) != "" {
		e.destination = forReading
		return
	}
	e.giveUp(class, err)
}

// giveUp lets the event be dead-lettered: by the gate, which records that, if the store waits for it.
func (e *task) giveUp(class Class, err error) {
	e.identifyAsDeferred()
	if !e.shadow && e.request.Key.ID != "" && (e.request.Position != dedup.Position{} || e.deferred != nil) {
		e.refuseInAttempt(outcome{meaning: permanent, class: class, err: err})
		return
	}
	e.deadLetter(class, err)
}

// refuseInAttempt lets the gate do with the event what o says, instead of running its handler.
func (e *task) refuseInAttempt(o outcome) {
	e.destination, e.isolated, e.refusal = forHandler, true, o
}

// readingOutcome is what an error means of a function that reads an event. Nothing was run, so there is no doubt.
func readingOutcome(err error) outcome {
	if ErrorMark(err) == "" {
		return outcome{meaning: permanent, class: ClassUndecodable, err: err}
	}
	o := classify(nil, err)
	o.unbegun = true
	return o
}

// reread waits as the error of the last reading says, and reads the event again; or leaves it to the gate, or to the dead letters.
func (b *batch) reread(e *task) error {
	if due := e.due(); due > 0 {
		return b.budget.wait(b.ctx, due, ErrNotDue)
	}
	if e.err != nil {
		if again, err := b.wait(e, readingOutcome(e.err)); err != nil || !again {
			return cmp.Or(err, e.stuck())
		}
	}
	b.deferredAt = ^uint64(0) // what is behind it was not looked into
	b.p.resolve(e)
	e.budget = b.budget
	return e.stuck()
}

// wait does what o asks for before the next reading. It reports whether there is to be one.
func (b *batch) wait(e *task, o outcome) (again bool, err error) {
	d, p := e, b.p
	found := d.route
	if found == nil {
		d.route = &bound{route: &route{settings: newSettings()}}
		defer func() { d.route = nil }()
	}
	d.attempt = d.earlier + d.rereads + 1
	p.judge(b.ctx, d, o, false)
	switch d.action.kind {
	case actRetry:
		d.rereads++
		p.notifyRetry(b.ctx, d, o)
		if err = sleep(b.ctx, d.action.delay); err == nil && found != nil {
			err = p.afford(b.ctx, d)
		}
	case actWait:
		err = b.waitForReader(e, o)
	case actDelayedRetry:
		if d.request.Key.ID != "" { // the store has to know where it goes on
			e.refuseInAttempt(o)
			return false, nil
		}
		e.giveUp(o.class, o.err)
		return false, nil
	default:
		e.giveUp(o.class, o.err)
		return false, nil
	}
	return true, err
}

// waitForReader waits for what the reading of an event depends on.
func (b *batch) waitForReader(e *task, o outcome) error {
	e.readerDown++
	if e.readerDown == 1 {
		b.p.log.WarnContext(b.ctx, "event cannot be read while something it depends on is unavailable, waiting",
			append(b.p.messageAttrs(e.message, e.request.Key), "error", b.p.errorText(o.err))...)
	}
	return b.p.waitOut(b.ctx, e, e.readerDown, fmt.Errorf("%w: %w", dedup.ErrUnavailable, o.err))
}

// waitOut waits before the given try to reach what is down. The time does not count as the event's.
func (p *Processor) waitOut(ctx context.Context, d *task, try int, reason error) error {
	began := time.Now()
	err := d.budget.wait(ctx, outageWait(try), reason)
	d.excludeWait(time.Since(began))
	return err
}
