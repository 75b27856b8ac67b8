package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/throttle"
	"github.com/idem-go/idem/observe"
)

// This file is the circuit breaker of a handler. All lanes of a processor share it.

// breakerLook is the longest pause before a waiting event looks at the breaker again. So events go
// on soon after a success in another lane.
const breakerLook = time.Second

// breakerEnd returns the meaning of an outcome for the dependency of the handler. An outage of the
// store is no outage of the dependency.
func breakerEnd(o outcome) throttle.RunEnd {
	switch {
	case o.meaning == succeeded:
		return throttle.RunSucceeded
	case o.meaning == unavailable && o.marked && !o.unbegun:
		return throttle.RunUnavailable
	}
	return throttle.RunUnsure
}

// awaitBreaker waits until the breaker of the handler lets the event run. The event holds no claim
// meanwhile. The wait does not count as time of the event.
func (p *Processor) awaitBreaker(ctx context.Context, t *task) error {
	b := t.route
	for began := time.Now(); ; {
		trial, wait, change := b.breaker.Begin(time.Now())
		p.notifyBreaker(ctx, b, change, nil)
		if wait <= 0 {
			t.trial = trial
			return nil
		}
		err := t.budget.wait(
			ctx, min(wait, breakerLook)+jitter(breakerLook/10),
			fmt.Errorf(
				"%w: the circuit breaker of handler %q is open", dedup.ErrUnavailable, b.Name,
			),
		)
		t.excludeWait(time.Since(began))
		if err != nil {
			return err
		}
		began = time.Now()
	}
}

// noteRun notes the outcomes of one call of a handler.
func (p *Processor) noteRun(ctx context.Context, b *bound, o *outcomes, tasks []*task) {
	if b.breaker == nil {
		return
	}
	end, err := throttle.RunUnsure, error(nil)
	for _, t := range tasks {
		one := o.of(t)
		if e := breakerEnd(one); e > end {
			end, err = e, one.err
		}
	}
	p.notifyBreaker(ctx, b, b.breaker.Note(time.Now(), end), err)
}

// paused reports whether the breaker of the handler waits for a dependency.
func (b *bound) paused() bool { return b.breaker.State() != throttle.BreakerClosed }

// excludePause excludes the pauses of the breaker from the outage that the event has met. So no
// event is given up for an outage of the dependency, however long. Time in which other events
// succeed counts, because this event may be the cause then.
func (t *task) excludePause(now time.Time) {
	paused := t.route.breaker.Paused(now)
	if !t.downSince.IsZero() {
		t.downSince = t.downSince.Add(paused - t.paused)
	}
	t.paused = paused
}

func (r *reporter) notifyBreaker(
	ctx context.Context, b *bound, c throttle.Change, err error,
) {
	if !c.Changed {
		return
	}
	e := observe.BreakerEvent{
		Group: r.group, Handler: b.Name, Type: b.Type, For: c.For, Err: err,
	}
	attrs := []any{"handler", b.Name, "type", b.Type, "for", c.For.Round(time.Millisecond)}
	switch c.To {
	case throttle.BreakerOpen:
		e.State = observe.BreakerOpen
		attrs = append(attrs, "error", r.errorText(err))
		if c.For == 0 {
			r.log.WarnContext(
				ctx, "circuit breaker opens: the events of the handler wait", attrs...,
			)
		} else {
			r.log.InfoContext(ctx, "circuit breaker opens again", attrs...)
		}
	case throttle.BreakerHalfOpen:
		e.State = observe.BreakerHalfOpen
		r.log.InfoContext(ctx, "circuit breaker is half-open: one event tries", attrs...)
	case throttle.BreakerClosed:
		r.log.InfoContext(ctx, "circuit breaker closes: the events of the handler run", attrs...)
	}
	r.tellBreaker(ctx, e)
}

func (r *reporter) tellBreaker(ctx context.Context, e observe.BreakerEvent) {
	for _, o := range r.obs.Breaker {
		o.ObserveBreaker(ctx, e)
	}
}

// openBreakers returns the handlers with a breaker that is open or half-open. Their events wait for
// a dependency.
func (p *Processor) openBreakers() (open []*bound) {
	for b := range p.handlers {
		if b.paused() {
			open = append(open, b)
		}
	}
	return open
}

// closeBreakers reports, once, that the pauses of open breakers end with the processor.
func (p *Processor) closeBreakers() {
	if !p.breakersClosed.CompareAndSwap(false, true) {
		return
	}
	for _, b := range p.openBreakers() {
		p.tellBreaker(context.Background(), observe.BreakerEvent{
			Group: p.group, Handler: b.Name, Type: b.Type, Ended: true,
		})
	}
}
