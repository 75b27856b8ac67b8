package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/idem-go/idem"
)

// producer publishes dead letters. The client must have acks=all, its default.
type producer struct{ *kafka.Producer }

// Produce implements [idem.Producer].
func (p producer) Produce(ctx context.Context, msgs ...*idem.Message) error {
	results := make(chan kafka.Event, len(msgs)) // room for all: the client never waits for a reader
	var errs []error
	sent := 0
	for _, m := range msgs {
		out := &kafka.Message{
			TopicPartition: kafka.TopicPartition{Topic: &m.Topic, Partition: kafka.PartitionAny},
			Key:            m.Key, Value: m.Value, Timestamp: m.Time,
		}
		for _, h := range m.Headers {
			out.Headers = append(out.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		if err := p.Producer.Produce(out, results); err != nil {
			errs = append(errs, classified(err))
			continue
		}
		sent++
	}
	for range sent {
		select {
		case e := <-results:
			if m, ok := e.(*kafka.Message); ok && m.TopicPartition.Error != nil {
				errs = append(errs, classified(m.TopicPartition.Error))
			}
		case <-ctx.Done():
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
	}
	return errors.Join(errs...)
}

// classified marks the errors that no later attempt can avoid.
func classified(err error) error {
	said, ok := errors.AsType[kafka.Error](err)
	switch {
	case !ok:
		return err
	case said.Code() == kafka.ErrMsgSizeTooLarge:
		return fmt.Errorf("%w: %w", idem.ErrTooLarge, err)
	case said.Code() == kafka.ErrInvalidRecord, said.Code() == kafka.ErrPolicyViolation:
		return fmt.Errorf("%w: %w", idem.ErrRefused, err)
	}
	return err
}
