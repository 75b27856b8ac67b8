package kgoidem

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/runner"
)

// prepare makes sure, before the group is joined, that the topics may be used, and that the stores
// know this consumer.
func (r *Runner) prepare(ctx context.Context) error {
	var back runner.Backoff
	for {
		err := r.tryPrepare(ctx)
		if err == nil {
			r.retry.Over()
			return r.register(ctx)
		}
		var missing *runner.TopicError
		if errors.As(err, &missing) {
			return err
		}
		if err := r.retry.Wait(ctx, &back, err); err != nil {
			return err
		}
	}
}

func (r *Runner) tryPrepare(ctx context.Context) error {
	if err := r.checkProtocol(ctx); err != nil {
		return err
	}
	setup := &runner.TopicSetup{
		Config: r.cfg.Config, Admin: r.admin, Commands: r.cfg.commands(), Classify: classify,
		Delays: r.proc.RetryDelays(), OwnProducer: r.own != nil, Topics: r.topics,
	}
	if err := setup.Ensure(ctx); err != nil {
		return err
	}
	_, err := r.watching().Look(ctx)
	return err
}

// watching returns the watch over the topics of the subscription.
func (r *Runner) watching() *runner.TopicWatch {
	return runner.NewTopicWatch(r.cfg.Config, r.admin, r.cfg.commands(), r.topics)
}

// errOldBrokers means that the brokers do not know the protocol of KIP-848. franz-go would use the
// old protocol without a word.
var errOldBrokers = errors.New("the brokers do not know the protocol NextGeneration: it needs Kafka 4.0, " +
	"or use Cooperative")

// checkProtocol fails if the brokers do not know the protocol.
func (r *Runner) checkProtocol(ctx context.Context) error {
	if r.cfg.client.Protocol != NextGeneration {
		return nil
	}
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, r.plain)
	if err != nil {
		return fmt.Errorf("ask for the versions of the brokers: %w", err)
	}
	heartbeat := kmsg.NewPtrConsumerGroupHeartbeatRequest().Key()
	for _, k := range answer.ApiKeys {
		if k.ApiKey == heartbeat {
			return nil
		}
	}
	return errOldBrokers
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
	offsets, err := kadm.NewClient(r.plain).FetchOffsetsForTopics(ctx, r.cfg.Group, r.cfg.Topics...)
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

// deleted reports whether a topic does not exist according to the brokers.
func (r *Runner) deleted(ctx context.Context, topic string) bool {
	found, err := r.admin.Topics(ctx, []string{topic})
	return err == nil && len(found) == 1 && !found[0].Exists && !found[0].Denied && found[0].Err == nil
}
