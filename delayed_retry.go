package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
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
// published to a topic of the group ([RetryTopic]), from which it is tried again after the first delay, then after the
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

// RetryDelays returns the delays of all handlers with [RetryTopics], ascending: a consumer reads [RetryTopic] of each of its
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

// delayedRetry is where an event goes for its next attempt.
type delayedRetry struct {
	delay     time.Duration
	notBefore time.Time // what it asked for
	counted   bool      // a run failed
}

// end is what settled an event.
type end uint8

const (
	endNone end = iota
	endDone
	endRescheduled // on its way to a later attempt
	endDead
)

// laterOrLetter chooses the next attempt of an event whose tries in its place are spent.
func (d *task) delayOrDeadLetter(o outcome) action {
	if d.route.mode == blocking || d.request.Position.Retry >= maxReschedules {
		return actDeadLetter
	}
	next, counted := d.nextDelay(o.after)
	if next >= len(d.route.delays) {
		return actDeadLetter
	}
	d.delayed = delayedRetry{delay: d.route.delays[next], counted: counted}
	if o.after > 0 {
		d.delayed.notBefore = time.Now().Add(o.after)
	}
	return actDelayedRetry
}

// nextDelay is the index of the next delay, behind the last if all were used. An event that must wait for longer than the longest
// takes that one as often as it must, and no attempt is counted (rule 42).
func (d *task) nextDelay(after time.Duration) (next int, counted bool) {
	delays := d.route.delays
	if d.route.mode == keyOrdered { // its place in the table takes any delay
		return int(d.request.Position.Retry), true
	}
	if c := d.message.copied; c != nil && c.delay > 0 {
		next, _ = slices.BinarySearch(delays, c.delay+1)
	}
	if after <= 0 {
		return next, true
	}
	for i := next; i < len(delays); i++ {
		if delays[i] >= after {
			return i, true
		}
	}
	if after <= delays[len(delays)-1] && time.Until(d.notBefore()) <= 0 { // it has run, and its delays are used up
		return next, true
	}
	return len(delays) - 1, false
}

// remember takes over what a copy says of earlier attempts.
func (d *task) remember(c *copied) {
	if c == nil {
		return
	}
	d.request.Position = c.position
	if c.position.Retry > 0 { // else it was reopened, and begins anew
		d.earlier, d.failures = c.attempts, c.attempts
		d.firstFailure, d.lastFailure = c.first, c.last
	}
}

// notBefore is when a copy may be run, beyond the delay of its topic.
func (d *task) notBefore() time.Time {
	if d.message.copied == nil {
		return time.Time{}
	}
	return d.message.copied.notBefore
}

// due is how long a copy must not be handled yet.
func (d *task) due() time.Duration {
	if d.message.copied == nil {
		return 0
	}
	return d.message.copied.wait()
}

// failedNow notes a failure.
func (d *task) failedNow() {
	now := time.Now()
	if d.firstFailure.IsZero() {
		d.firstFailure = now
	}
	if d.blockedSince.IsZero() {
		d.blockedSince = now
	}
	d.lastFailure = now
}

// history of the event for its next copy.
func (p *Processor) history(d *task, o outcome) history {
	f := d.failure(o)
	h := history{
		key: f.key, class: f.class, err: p.errorText(f.err), attempts: d.earlier, first: f.first, last: f.last,
		position: d.request.Position, due: time.Now().Add(d.delayed.delay), notBefore: d.delayed.notBefore,
	}
	if d.delayed.counted {
		h.attempts = d.attempt
	}
	h.position.Retry++
	return h
}

// publishCopy brings the event to where its next attempt will be, before the store is told: should that be lost, the copy is
// accepted all the same, and the record follows it. What cannot be moved for its size is dead-lettered.
func (p *Processor) publishCopy(ctx context.Context, d *task, o outcome) (act action, err error) {
	h := p.history(d, o)
	if d.route.mode == keyOrdered {
		return actDelayedRetry, p.deferEvent(ctx, d, h)
	}
	if p.cfg.Producer == nil {
		m := d.message
		return actDelayedRetry, fmt.Errorf("%w: %s/%d/%d is to be tried again later: %w", ErrNoProducer, m.Topic, m.Partition, m.Offset, o.err)
	}
	c := copyOf(d.message, &h, p.cfg.Group, d.delayed.delay)
	err = p.publish(ctx, d.budget, "later attempts", func(ctx context.Context) error { return p.produce(ctx, c) })
	if errors.Is(err, ErrTooLarge) {
		return actDeadLetter, nil
	}
	if err == nil {
		p.notifyRescheduled(ctx, d, o, c.Topic)
	}
	return actDelayedRetry, err
}

// rescheduleClaimed moves an event on whose claim is held. Order: copy acknowledged, recorded, settled (rule 3).
func (p *Processor) rescheduleClaimed(hard context.Context, d *task, o outcome) (step, error) {
	act, err := p.publishCopy(hard, d, o)
	switch {
	case err != nil:
		p.giveBack(hard, d, d.failedOutcome())
		return step{}, err
	case act == actDeadLetter:
		return p.giveUpClaimed(hard, d, o)
	}
	lost, err := p.complete(hard, d, dedup.Completion{Retry: d.request.Position.Retry + 1})
	d.end, d.settlement = endRescheduled, SettledRescheduled
	return step{settled: err == nil && !lost}, err
}

// failedOutcome is how the claim of a failed event is given back that could be brought neither to its next attempt nor to
// the dead letters.
func (d *task) failedOutcome() dedup.Outcome {
	if d.route.uncertain == DeadLetterUncertain {
		return dedup.Unknown
	}
	return dedup.Failed
}

// rescheduleTx moves an event on whose transaction was rolled back, or which has not run.
func (p *Processor) rescheduleTx(ctx context.Context, d *task, o outcome) (step, error) {
	act, err := p.publishCopy(ctx, d, o)
	switch {
	case err != nil:
		return step{}, err
	case act == actDeadLetter:
		return p.giveUpTx(ctx, d, o)
	}
	d.end, d.settlement = endRescheduled, SettledRescheduled
	return p.recordTx(ctx, d, dedup.Completion{Retry: d.request.Position.Retry + 1})
}

// settleRescheduled settles a delivery that a later attempt has overtaken. If that one waits in the table, what comes behind it is
// to wait there too: it may be there since a moment ago, put there by the partition's owner before us (rule 4).
func (p *Processor) settleRescheduled(ctx context.Context, d *task, a dedup.Answer) (step, error) {
	if d.route.mode == keyOrdered && d.deferred == nil {
		if err := p.deferredPartitions.refresh(ctx, p, d); err != nil {
			return step{outage: err}, nil //nolint:nilerr // it is waited for
		}
	}
	d.end = endRescheduled
	p.notifyDuplicate(ctx, d, a)
	return step{settled: true}, nil
}
