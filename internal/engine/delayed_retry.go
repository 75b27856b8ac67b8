package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/idemtype"
)

// This file is about attempts that do not hold up the lane: where a failing event goes when its tries in place are spent,
// and how it gets there so that at most one copy of each attempt can ever run (rule 3).

// orderMode says what becomes of the events behind a failing one.
type OrderMode uint8

const (
	Blocking   OrderMode = iota // they wait
	Unordered                   // they go on: it is published to a retry topic
	KeyOrdered                  // those of its Kafka key wait with it in the store, the others go on
)

const (
	minDelay  = time.Millisecond
	maxDelays = 16
	// maxReschedules bounds how often an event is moved on: RetryAfter costs no attempt, and must not go on for ever (T-08).
	maxReschedules = 1000
)

func checkDelays(s *Settings) error {
	if s.Mode == Blocking {
		return nil
	}
	if len(s.Delays) == 0 || len(s.Delays) > maxDelays {
		return fmt.Errorf("RetryTopics and KeyOrdered want 1 to %d delays, not %d", maxDelays, len(s.Delays))
	}
	for i, d := range s.Delays {
		if d < minDelay || d%minDelay != 0 || i > 0 && d <= s.Delays[i-1] {
			return errors.New("the delays of RetryTopics and KeyOrdered must ascend, in whole milliseconds")
		}
	}
	return nil
}

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

// end is what settled an event.
type end uint8

const (
	endNone end = iota
	endDone
	endRescheduled // on its way to a later attempt
	endDead
)

// remember takes over what a copy says of earlier attempts.
func (t *task) remember(c *copied) {
	if c == nil {
		return
	}
	t.request.Position = c.Position
	if c.Position.Retry > 0 { // else it was reopened, and begins anew
		t.earlier, t.failures = c.Attempts, c.Attempts
		t.firstFailure, t.lastFailure = c.FirstFailure, c.LastFailure
	}
}

// notBefore is when a copy may be run, beyond the delay of its topic.
func (t *task) notBefore() time.Time {
	if t.copied == nil {
		return time.Time{}
	}
	return t.copied.NotBefore
}

// due is how long a copy must not be handled yet.
func (t *task) due() time.Duration {
	if t.copied == nil {
		return 0
	}
	return t.copied.wait()
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
