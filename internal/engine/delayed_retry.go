package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/idemtype"
)

// This file makes delayed retries of failing events. publishCopy chooses the place of the next
// attempt. The order of the steps lets at most one copy of each attempt run (rule 3).

// RetryDelays returns the delays of all handlers with retry topics, ascending.
func (p *Processor) RetryDelays() []time.Duration {
	var delays []time.Duration
	for _, g := range p.routes.groups {
		for _, b := range g.byType {
			if b.Mode == Unordered {
				delays = append(delays, b.Delays...)
			}
		}
	}
	slices.Sort(delays)
	return slices.Compact(delays)
}

// next returns the event for the next attempt.
func (p *Processor) next(t *task, o outcome) deadletter.Event {
	e := p.failure(t, o).Event
	e.Attempts = t.earlier
	if t.action.counted {
		e.Attempts = t.attempt
	}
	e.Position = t.request.Position
	e.Position.Retry++
	e.Due, e.NotBefore = time.Now().Add(t.action.delay), t.action.notBefore
	return e
}

// publishCopy brings the event to the place of the next attempt. The store records that afterwards.
// If the record fails, the store still accepts the copy, and the record follows. An error that
// matches [idemtype.ErrTooLarge] means that no topic accepts the copy.
func (p *Processor) publishCopy(ctx context.Context, t *task, o outcome) error {
	e := p.next(t, o)
	if t.route.Mode == KeyOrdered {
		return p.deferEvent(ctx, t, e)
	}
	if p.cfg.Producer == nil {
		m := t.message
		return fmt.Errorf(
			"%w: %s/%d/%d is to be tried again later: %w", idemtype.ErrNoProducer, m.Topic,
			m.Partition, m.Offset, o.err,
		)
	}
	c := e.Copy(t.action.delay)
	err := p.publish(
		ctx, t.budget, "later attempts",
		func(ctx context.Context) error { return p.produce(ctx, c) },
	)
	if err == nil {
		p.notifyRescheduled(ctx, t, o, c.Topic)
	}
	return err
}
