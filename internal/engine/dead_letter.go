package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// publishDeadLetter publishes until the broker has acknowledged the dead letter (T-01). The
// attempts end with ctx and with the wait budget of the call.
func (p *Processor) publishDeadLetter(ctx context.Context, budget *waitBudget, f failure) error {
	m := f.Message
	if p.cfg.Producer == nil {
		return fmt.Errorf(
			"%w: %s/%d/%d is to be dead-lettered (%s): %w", idemtype.ErrNoProducer, m.Topic,
			m.Partition, m.Offset, f.Class, f.err,
		)
	}
	topic := p.DeadLetterTopicOf(m.Topic)
	l, omitted := f.DeadLetter(topic), false
	err := p.publish(ctx, budget, "dead letters", func(ctx context.Context) error {
		err := p.produce(ctx, l)
		if errors.Is(err, idemtype.ErrTooLarge) {
			p.log.WarnContext(ctx, "dead letter too large, sending it without its value",
				messageAttrs(m, f.Key)...)
			l, omitted = f.Pointer(topic), true
			err = p.produce(ctx, l)
		}
		if errors.Is(err, idemtype.ErrRefused) && !l.Time.IsZero() {
			l.Time = time.Time{}
			err = p.produce(ctx, l)
		}
		if errors.Is(err, idemtype.ErrTooLarge) { // a person must raise the limit
			err = errors.New("dead letter without its value: " + p.errorText(err))
		}
		return err
	})
	if err != nil {
		return err
	}
	attrs := append(
		messageAttrs(m, f.Key), "class", f.Class, "dead_letter_topic", l.Topic, "error",
		p.errorText(f.err),
	)
	p.log.ErrorContext(ctx, "event dead-lettered", attrs...)
	for _, o := range p.obs.DeadLetter {
		o.ObserveDeadLetter(ctx, observe.DeadLetterEvent{
			Group: p.cfg.Group, Message: m, Key: f.Key, Topic: l.Topic, Class: f.Class,
			Err: f.err, Omitted: omitted,
		})
	}
	return nil
}

// publish calls send until the call succeeds or the message is too large. The calls end with ctx
// and with the wait budget.
func (p *Processor) publish(
	ctx context.Context, budget *waitBudget, what string, send func(context.Context) error,
) error {
	return p.producer.insist(ctx, budget, what, func() (bool, error) {
		err := send(ctx)
		return errors.Is(err, idemtype.ErrTooLarge), err
	})
}

// produce publishes one message. A stop does not cancel a publication that has begun.
func (p *Processor) produce(ctx context.Context, l *idemtype.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), produceTimeout)
	defer cancel()
	return p.cfg.Producer.Produce(ctx, l)
}

// produceTimeout bounds one attempt to send a dead letter.
const produceTimeout = 10 * time.Second

// deadLetterTask publishes the dead letter of a message that never gets a claim. The dead letter
// has the key of the event, if that is known. The dead letter of a copy has the copy's position
// instead, because the store waits for that copy. A replay goes to that position.
func (p *Processor) deadLetterTask(ctx context.Context, t *task) error {
	f := p.failure(t, outcome{class: t.class, err: t.err})
	if c := t.copied; c != nil {
		f.Position = c.Position
	}
	if f.Position.Retry > 0 {
		f.Key = dedup.Key{}
		f.ID, f.Type = p.hints(t)
	}
	return p.publishDeadLetter(ctx, t.budget, f)
}

// deadLetterOnly publishes a dead letter of this copy. The record of the event in the store stays
// unchanged.
func (p *Processor) deadLetterOnly(
	ctx context.Context, t *task, class idemtype.Class, err error,
) (attemptResult, error) {
	o := outcome{class: class, err: err}
	f := p.failure(t, o)
	f.Attempts = 0
	if err := p.publishDeadLetter(ctx, t.budget, f); err != nil {
		return attemptResult{}, err
	}
	t.kind = observe.SettledDeadLetter
	return attemptResult{settled: true}, nil
}

// deadLetterConflict dead-letters a copy with a different content.
func (p *Processor) deadLetterConflict(
	ctx context.Context, t *task, a dedup.Answer,
) (attemptResult, error) {
	s, err := p.deadLetterOnly(ctx, t, idemtype.ClassConflict, conflictError(a))
	if err == nil {
		p.notifyConflict(ctx, t, a, true)
	}
	return s, err
}

// DeadLetterTopicOf returns the dead-letter topic for a topic.
func (p *Processor) DeadLetterTopicOf(topic string) string {
	if source, _, ok := p.copies.topics.Source(topic); ok {
		topic = source
	}
	return p.cfg.DeadLetterTopic(topic)
}

// failure returns the event and its last error, for a dead letter or a later attempt.
func (p *Processor) failure(t *task, o outcome) failure {
	now := time.Now()
	if t.firstFailure.IsZero() {
		t.firstFailure, t.lastFailure = now, now
	}
	f := failure{err: o.err, Event: deadletter.Event{
		Key: t.request.Key, Group: p.cfg.Group, Message: t.message, Class: o.class,
		Error: p.errorText(o.err), Attempts: t.attempt,
		FirstFailure: t.firstFailure, LastFailure: t.lastFailure,
		Position: dedup.Position{Generation: t.request.Position.Generation},
	}}
	f.Edited, f.Replays = t.editedFrom(), t.replays()
	if t.noID != idemtype.DeadLetterNoID { // the store knows no such event
		f.Key = dedup.Key{}
	}
	if f.Key.ID == "" {
		f.ID, f.Type = p.hints(t)
	}
	return f
}
