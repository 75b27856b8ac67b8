package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// failure is an event that is given up, with its last error.
type failure struct {
	deadletter.Event
	err error
}

// publishDeadLetter publishes until the dead letter is acknowledged (T-01), or until ctx or the wait budget of the call ends.
func (p *Processor) publishDeadLetter(ctx context.Context, budget *waitBudget, f failure) error {
	m := f.Message
	if p.cfg.Producer == nil {
		return fmt.Errorf("%w: %s/%d/%d is to be dead-lettered (%s): %w", idemtype.ErrNoProducer, m.Topic, m.Partition, m.Offset, f.Class, f.err)
	}
	topic := p.DeadLetterTopic(m.Topic)
	l, omitted := f.DeadLetter(topic), false
	err := p.publish(ctx, budget, "dead letters", func(ctx context.Context) error {
		err := p.produce(ctx, l)
		if errors.Is(err, idemtype.ErrTooLarge) {
			p.log.WarnContext(ctx, "dead letter too large, sending it without its value", p.messageAttrs(m, f.Key)...)
			l, omitted = f.Pointer(topic), true
			err = p.produce(ctx, l)
		}
		if errors.Is(err, idemtype.ErrRefused) && !l.Time.IsZero() {
			l.Time = time.Time{}
			err = p.produce(ctx, l)
		}
		if errors.Is(err, idemtype.ErrTooLarge) { // there is nothing smaller: until somebody raises the limit
			err = errors.New("dead letter without its value: " + p.errorText(err))
		}
		return err
	})
	if err != nil {
		return err
	}
	attrs := append(p.messageAttrs(m, f.Key), "class", f.Class, "dead_letter_topic", l.Topic, "error", p.errorText(f.err))
	p.log.ErrorContext(ctx, "event dead-lettered", attrs...)
	for _, o := range p.obs.deadLetter {
		o.ObserveDeadLetter(ctx, observe.DeadLetterEvent{Group: p.cfg.Group, Message: m, Key: f.Key, Topic: l.Topic, Class: f.Class, Err: f.err, Omitted: omitted})
	}
	return nil
}

// publish calls send until that succeeds, or until ctx or the wait budget of the call ends. What is too large is not tried
// again, if send says so.
func (p *Processor) publish(ctx context.Context, budget *waitBudget, what string, send func(context.Context) error) error {
	return p.insist(ctx, budget, &p.producer, what, func() (bool, error) {
		err := send(ctx)
		return errors.Is(err, idemtype.ErrTooLarge), err
	})
}

// produce sends one message. It outlives a stop by a moment, since a dead letter that was begun had better be finished.
func (p *Processor) produce(ctx context.Context, l *idemtype.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), produceTimeout)
	defer cancel()
	return p.cfg.Producer.Produce(ctx, l)
}

// produceTimeout bounds one attempt to send a dead letter.
const produceTimeout = 10 * time.Second
