package runner

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// topicCreator creates dead-letter topics and retry topics.
type topicCreator struct {
	admin    Admin
	classify Classify
	spec     *TopicSpec // nil: nothing is created
	commands Commands
	log      *slog.Logger
	made     map[string]bool // created by this start: brokers may not know the topic at once
}

// when returns create if topics shall be created, else nil. A broker may still have reported a
// topic that was just deleted, so such a topic is missing only later.
func (c *topicCreator) when(
	create func(context.Context, []string) error,
) func(context.Context, []string) error {
	if c.spec == nil {
		return nil
	}
	return create
}

// toCreate returns those of topics that do not exist and shall be created. Without the right to
// describe a topic, the client cannot know, and the topic is left out.
func (c *topicCreator) toCreate(
	ctx context.Context, topics map[string]*TopicInfo,
) ([]string, error) {
	if c.spec == nil || len(topics) == 0 {
		return nil, nil
	}
	found, err := c.admin.Topics(ctx, slices.Sorted(maps.Keys(topics)))
	if err != nil {
		return nil, err
	}
	access, err := accessOf(found, 0)
	return access.missing, err
}

// deadLetters creates a dead-letter topic.
func (c *topicCreator) deadLetters(
	ctx context.Context, name string, source *TopicInfo,
) error {
	settings := map[string]string{"retention.ms": "-1"}
	for k, v := range c.spec.Config {
		settings[k] = v
	}
	return c.create(ctx, "dead-letter topic", name, source, settings)
}

// retries creates a retry topic. Compaction would keep only the last copy of a key.
func (c *topicCreator) retries(ctx context.Context, name string, source *TopicInfo) error {
	settings := map[string]string{"cleanup.policy": "delete"}
	for k, v := range c.spec.Config {
		if k != "retention.ms" && k != "cleanup.policy" {
			settings[k] = v
		}
	}
	return c.create(ctx, "retry topic", name, source, settings)
}

// create creates a topic with the partitions and replicas of its source, unless Spec sets others. A
// broker's default, which may be a single replica, is never used (K-36).
func (c *topicCreator) create(
	ctx context.Context, kind, name string, source *TopicInfo, settings map[string]string,
) error {
	if c.made[name] {
		return nil
	}
	partitions, replicas := c.spec.Partitions, c.spec.ReplicationFactor
	if partitions == 0 {
		partitions = int32(len(source.Partitions)) //nolint:gosec // far below
	}
	if replicas == 0 {
		replicas = source.Replicas
	}
	created, err := c.admin.CreateTopic(ctx, name, partitions, replicas, settings)
	if err == nil {
		if created { // otherwise another instance was first, or the brokers still delete the topic
			c.made[name] = true
			c.log.Info(kind+" created", "topic", name,
				"partitions", partitions, "replicas", replicas)
		}
		return nil
	}
	if class := c.classify(err); class == DeniedTopic || class == DeniedCluster {
		var own []string
		for k, v := range settings {
			own = append(own, k+"="+v)
		}
		slices.Sort(own)
		return fmt.Errorf("%w: no right to create %s %s: create it: %s; or grant the right: %s: %w",
			ErrUnauthorized, kind, name, c.commands.Create(name, source, own...),
			c.commands.Grant("topic", name, "Create"), err)
	}
	return fmt.Errorf("create %s %s: %w", kind, name, err)
}
