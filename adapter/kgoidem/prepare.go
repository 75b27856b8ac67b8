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
	var back runner.Backoff
	for {
		topics, err := r.ensureTopics(ctx)
		if err == nil {
			r.retry.Over()
			return topics, r.register(ctx)
		}
		var missing *runner.TopicError
		if errors.As(err, &missing) {
			return nil, err
		}
		if err := r.retry.Wait(ctx, &back, err); err != nil {
			return nil, err
		}
	}
}

// register compares scope and identity functions with those on record, before the group is joined.
//
// Only source topics are registered. Retry topics are the group's own, so no other scope can have
// handled events there.
func (r *Runner) register(ctx context.Context) error {
	if !r.stores.Registers() {
		return nil
	}
	none, err := r.noOffsets(ctx)
	if err != nil {
		return err
	}
	return r.stores.Register(ctx, dedup.Registration{
		Group: r.cfg.Group, Topics: r.cfg.Topics, NoOffsets: none,
		AcceptNewIdentity: r.cfg.AcceptNewIdentity, NewScope: r.cfg.NewScope,
	})
}

// noOffsets reports whether the topics have no committed offset of the group. Without the right to
// know, noOffsets logs a warning and returns false (rule 46).
func (r *Runner) noOffsets(ctx context.Context) (bool, error) {
	var back runner.Backoff
	for {
		none, err := r.askOffsets(ctx)
		switch classify(err) {
		case runner.UnknownGroup:
			return true, nil
		case runner.DeniedGroup, runner.DeniedTopic:
			r.log.Warn("not known whether the group has committed offsets, "+
				"so a renamed group is not noticed: grant Describe on the group and on its topics",
				"group", r.cfg.Group, "error", r.cfg.Text(err))
			return false, nil
		}
		if err == nil {
			r.retry.Over()
			return none, nil
		}
		if err := r.retry.Wait(ctx, &back, err); err != nil {
			return false, err
		}
	}
}

func (r *Runner) askOffsets(ctx context.Context) (none bool, err error) {
	offsets, err := r.admin.FetchOffsetsForTopics(ctx, r.cfg.Group, r.cfg.Topics...)
	if err != nil {
		return false, fmt.Errorf("offsets of group %s: %w", r.cfg.Group, err)
	}
	none = true
	for _, topic := range r.cfg.Topics {
		for id, o := range offsets[topic] {
			if o.Err != nil {
				return false, fmt.Errorf("offsets of group %s, %s/%d: %w", r.cfg.Group, topic, id, o.Err)
			}
			none = none && o.At < 0
		}
	}
	return none, nil
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
