package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/idemtype"
)

// This file is about attempts that do not hold up the lane: where a failing event goes when its tries in place are spent,
// and how it gets there so that at most one copy of each attempt can ever run (rule 3).

// RetryDelays returns the delays of all handlers with [RetryTopics], ascending: a consumer reads [deadletter.RetryTopic] of each of its
// topics for each of them.
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

// next returns the event for its next attempt.
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

// publishCopy brings the event to the place of its next attempt, before the store knows of it. If that is not recorded, the store
// accepts the copy all the same, and the record follows it. An error that matches [ErrTooLarge] says that no topic takes it.
func (p *Processor) publishCopy(ctx context.Context, t *task, o outcome) error {
	e := p.next(t, o)
	if t.route.Mode == KeyOrdered {
		return p.deferEvent(ctx, t, e)
	}
	if p.cfg.Producer == nil {
		m := t.message
		return fmt.Errorf("%w: %s/%d/%d is to be tried again later: %w", idemtype.ErrNoProducer, m.Topic, m.Partition, m.Offset, o.err)
	}
	c := e.Copy(t.action.delay)
	err := p.publish(ctx, t.budget, "later attempts", func(ctx context.Context) error { return p.produce(ctx, c) })
	if err == nil {
		p.notifyRescheduled(ctx, t, o, c.Topic)
	}
	return err
}
