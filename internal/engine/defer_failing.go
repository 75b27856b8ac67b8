package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// This file defers failing events of KeyOrdered handlers for their next attempt.

// deferEvent puts a failing event at the head of a queue. An event that came from a queue goes back
// to its head.
func (p *Processor) deferEvent(ctx context.Context, t *task, next deadletter.Event) error {
	wait := max(t.action.delay, time.Until(next.NotBefore))
	e, err := newDeferred(t, p.orderKeyOf(t), next, wait)
	if err != nil {
		return err
	}
	if t.deferred != nil {
		// Key and queue stay unchanged, even if this release computes others.
		e.Key, e.Queue = t.deferred.head.Key, t.deferred.head.Queue
		return p.postpone(ctx, t, e)
	}
	part := p.deferredPartitionOf(t)
	free, err := part.holdTable(ctx, t.budget)
	if err != nil {
		return err
	}
	defer free()
	for try := 1; ; try++ {
		if err := p.deferAll(ctx, t.budget, t.access, part, []dedup.Deferred{e}); err != nil {
			return err
		}
		there, err := p.deferredAsNext(ctx, t, part, e)
		if err != nil {
			return err
		}
		if there {
			break
		}
		reason := fmt.Errorf(
			"%w: defer: event %s was taken out of its queue meanwhile", dedup.ErrUnavailable, e.Key,
		)
		if stop := t.budget.wait(ctx, outageWait(try), reason); stop != nil {
			return stop
		}
	}
	p.notifyRescheduled(ctx, t, outcome{err: errors.New(next.Error)}, "")
	return nil
}

// wouldOvertake reports whether the event, if deferred now, would overtake an earlier event of its
// Kafka key that the same call has not settled. That event would have to wait behind it. So this
// event is claimed again after that one. If it asked for a pause, it is deferred then without a run.
// An event from a queue keeps its place there.
func (g *eventGroup) wouldOvertake(t *task) bool {
	if t.deferred != nil || t.route.Mode != KeyOrdered || t.message.Key == nil {
		return false
	}
	return slices.ContainsFunc(g.tasks, func(e *task) bool {
		return !e.settled && e.index < t.index && bytes.Equal(e.message.Key, t.message.Key)
	})
}

// deferredAsNext makes sure that a deferred failing event waits for the next attempt. The store
// keeps an event in one queue. A copy may be deferred already, behind another event or under
// another Kafka key, for the attempt that has just failed. The store would refuse that position, so
// the next attempt replaces the copy. there is false if the event is not deferred any longer.
func (p *Processor) deferredAsNext(
	ctx context.Context, t *task, part *deferredPartition, e dedup.Deferred,
) (there bool, err error) {
	var at dedup.DeferredPartition
	var found dedup.Deferred
	var ok bool
	err = t.access.repeatLook(
		ctx,
		t.budget,
		"look for a deferred event",
		func(ctx context.Context) (err error) {
			at, found, ok, err = part.deferrer.FindDeferred(
				ctx, part.id.Scope, part.id.Topic, e.Key,
			)
			return err
		},
	)
	if err != nil || !ok {
		return false, err
	}
	if found.Position.Before(e.Position) {
		if err := p.deadLetterOtherContent(ctx, t, found); err != nil {
			return false, err
		}
		e.Queue = found.Queue
		err := t.access.repeat(ctx, t.budget, "defer", func(ctx context.Context) (err error) {
			ok, err = part.deferrer.Postpone(ctx, at, e)
			return err
		})
		// ok is false after a success with a lost answer, and for an event that was removed.
		if err != nil || !ok {
			return false, err
		}
	}
	if at == part.id {
		part.set(found.Queue, true)
		part.signal()
	}
	return true, nil
}

// deadLetterOtherContent checks a deferred copy that the event replaces. A copy with another
// content becomes a dead letter.
func (p *Processor) deadLetterOtherContent(
	ctx context.Context, t *task, copied dedup.Deferred,
) error {
	// A replayed event may have been repaired.
	if copied.Position.Generation != 0 || t.message.SameRecord(copied.Origin) {
		return nil
	}
	m, content, ok := contentOf(t.route, copied)
	if !ok || !dedup.Differ(content, t.request.Fingerprint) {
		return nil
	}
	other := &task{
		message: m, reading: reading{route: t.route, access: t.access, request: t.request},
		budget: t.budget,
	}
	other.request.Fingerprint, other.request.Position = content, copied.Position
	_, err := p.deadLetterConflict(
		ctx, other,
		dedup.Answer{Verdict: dedup.Conflict, Known: dedup.Rescheduled, First: t.request.Origin},
	)
	return err
}

// postpone leaves an event at the head of the queue for the next attempt. An event that is not in
// the queue any longer was removed by a person.
func (p *Processor) postpone(ctx context.Context, t *task, e dedup.Deferred) error {
	part := t.deferred.part
	err := t.access.repeat(ctx, t.budget, "postpone", func(ctx context.Context) error {
		_, err := part.deferrer.Postpone(ctx, part.id, e)
		return err
	})
	if err == nil && !e.Blocked {
		p.notifyRescheduled(ctx, t, outcome{err: errors.New("failed again")}, "")
	}
	return err
}
