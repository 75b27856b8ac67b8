package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
)

// This file is about attempts that do not hold up the lane: where a failing event goes when its tries in place are spent,
// and how it gets there so that at most one copy of each attempt can ever run (rule 3).

// orderMode says what becomes of the events behind a failing one.
type orderMode uint8

const (
	blocking   orderMode = iota // they wait
	unordered                   // they go on: it is published to a retry topic
	keyOrdered                  // those of its Kafka key wait with it in the store, the others go on
)

// Blocking keeps all order, at the price of the lane: a failing event is tried again in its place, as [Retry] says, and
// what is behind it in its lane waits. Then it goes to the dead-letter topic, so that the wait is bounded; unless the
// policy says [Forever] and [NoLimit]. The default.
func Blocking() Option { return func(s *settings) { s.mode, s.delays = blocking, nil } }

// RetryTopics declares the order mode Unordered: when an event has failed in its place as often as [Retry] allows, it is
// published to a topic of the group ([deadletter.RetryTopic]), from which it is tried again after the first delay, then after the
// second, once each, and goes to the dead-letter topic after the last. Events of its key overtake it meanwhile. It works
// with every store, which keeps at most one copy of each attempt running, whatever crashes in between (rule 3). The
// topics are read by the same consumer, in the same scope.
//
// An error made by [RetryAfter] goes to the next delay that is long enough. If it wants more time than the longest one, it goes
// there again and again, which counts as no attempt, until its time has come (rule 42).
//
// Delays must ascend, from a millisecond up; there may be 16.
func RetryTopics(delays ...time.Duration) Option {
	return func(s *settings) { s.mode, s.delays = unordered, slices.Clone(delays) }
}

// KeyOrdered keeps the order of events with the same Kafka key and holds up no others: when an event has failed in its
// place as often as [Retry] allows, it waits in the store, in a table, for its next attempts after the given delays, and
// later events of its Kafka key wait behind it, through restarts and rebalances (rule 4). The store must be a
// [dedup.Deferrer]: Postgres. Events without a Kafka key have no order and wait alone. Handlers with other modes take no part in
// that order.
//
// After the last delay the event goes to the dead-letter topic, and those behind it stay until a person replays or skips
// it ("idem dlq replay", "idem event skip"), unless [ContinueAfterDead] is given. Delays must ascend; there may be 16. They are
// kept to the second or so.
func KeyOrdered(delays ...time.Duration) Option {
	return func(s *settings) { s.mode, s.delays = keyOrdered, slices.Clone(delays) }
}

// ContinueAfterDead lets the events behind one that was dead-lettered go on, in a handler that is [KeyOrdered].
func ContinueAfterDead() Option { return func(s *settings) { s.pastDead = true } }

const (
	minDelay  = time.Millisecond
	maxDelays = 16
	// maxReschedules bounds how often an event is moved on: RetryAfter costs no attempt, and must not go on for ever (T-08).
	maxReschedules = 1000
)

func checkDelays(s *settings) error {
	if s.mode == blocking {
		return nil
	}
	if len(s.delays) == 0 || len(s.delays) > maxDelays {
		return fmt.Errorf("RetryTopics and KeyOrdered want 1 to %d delays, not %d", maxDelays, len(s.delays))
	}
	for i, d := range s.delays {
		if d < minDelay || d%minDelay != 0 || i > 0 && d <= s.delays[i-1] {
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
			if b.mode == unordered {
				delays = append(delays, b.delays...)
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
	if t.route.mode == keyOrdered {
		return p.deferEvent(ctx, t, e)
	}
	if p.cfg.Producer == nil {
		m := t.message
		return fmt.Errorf("%w: %s/%d/%d is to be tried again later: %w", ErrNoProducer, m.Topic, m.Partition, m.Offset, o.err)
	}
	c := e.Copy(t.action.delay)
	err := p.publish(ctx, t.budget, "later attempts", func(ctx context.Context) error { return p.produce(ctx, c) })
	if err == nil {
		p.notifyRescheduled(ctx, t, o, c.Topic)
	}
	return err
}
