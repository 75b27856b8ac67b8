package kgoidem

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

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
			return runner.RegisterGroup(ctx, r.cfg.Config, r.stores, r.retry, r.offsets)
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
		Delays: r.group.Processor().RetryDelays(), OwnProducer: r.own != nil, Topics: r.topics,
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

// deleted reports whether a topic does not exist according to the brokers.
func (r *Runner) deleted(ctx context.Context, topic string) bool {
	found, err := r.admin.Topics(ctx, []string{topic})
	return err == nil && len(found) == 1 && !found[0].Exists && !found[0].Denied && found[0].Err == nil
}
