package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/runner"
)

// prepare makes sure, before the group is joined, that stores and topics may be used, and returns the
// topics to consume.
func (r *Runner) prepare(ctx context.Context) ([]string, error) {
	var back backoff
	for {
		topics, err := r.ensureTopics(ctx)
		if err == nil {
			r.retry.over()
			return topics, r.register(ctx)
		}
		var missing *runner.TopicError
		if errors.As(err, &missing) {
			return nil, err
		}
		if err := r.retry.wait(ctx, &back, err); err != nil {
			return nil, err
		}
	}
}

func (r *Runner) register(ctx context.Context) error {
	return r.proc.Register(ctx, dedup.Registration{
		Group: r.cfg.Group, Topics: r.cfg.Topics,
		AcceptNewIdentity: r.cfg.AcceptNewIdentity, NewScope: r.cfg.NewScope,
	})
}

func (r *Runner) ensureTopics(ctx context.Context) ([]string, error) {
	names := slices.Clone(r.cfg.Topics)
	for _, source := range r.cfg.Topics {
		for _, d := range append(r.delays, 0) {
			names = append(names, deadletter.RetryTopic(source, r.cfg.Group, d))
		}
		names = append(names, r.cfg.DeadLetterTopic(source))
	}
	found, err := r.admin.ListTopics(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	var missing, topics []string
	for _, source := range r.cfg.Topics {
		if !found.Has(source) {
			missing = append(missing, source)
		}
	}
	if len(missing) > 0 {
		return nil, &runner.TopicError{Topics: missing}
	}
	if r.cfg.CreateDeadLetterTopics != nil {
		for _, name := range names {
			if found.Has(name) {
				continue
			}
			source := found[r.cfg.Topics[0]]
			_, err := r.admin.CreateTopic(ctx, int32(len(source.Partitions)),
				int16(source.Partitions.NumReplicas()), nil, name)
			if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
				return nil, fmt.Errorf("create %s: %w", name, err)
			}
		}
	}
	for _, name := range names {
		if slices.Contains(r.cfg.Topics, name) || runner.IsRetry(name, r.cfg.Group) &&
			(found.Has(name) || r.cfg.CreateDeadLetterTopics != nil) {
			topics = append(topics, name)
		}
	}
	return topics, nil
}

// deleted reports whether a topic does not exist according to the brokers.
func (r *Runner) deleted(ctx context.Context, topic string) bool {
	found, err := r.admin.ListTopics(ctx, topic)
	return err == nil && errors.Is(found[topic].Err, kerr.UnknownTopicOrPartition)
}
