package topicadmin

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/IBM/sarama"
	"github.com/idem-go/idem/runner"
)

// Spec has the settings of topics to create. A zero number is the source topic's.
type Spec struct {
	Partitions        int32
	ReplicationFactor int16
	Config            map[string]string
}

// Creator creates dead-letter topics and retry topics.
type Creator struct {
	Client   sarama.Client
	Admin    sarama.ClusterAdmin
	Spec     *Spec // nil: nothing is created
	Commands Commands
	Log      *slog.Logger
}

// ToCreate returns those of topics that do not exist and shall be created. Without the right to
// describe a topic, the client cannot know, and the topic is left out.
func (c *Creator) ToCreate(topics map[string]*sarama.TopicMetadata) ([]string, error) {
	if c.Spec == nil || len(topics) == 0 {
		return nil, nil
	}
	found, err := Ask(c.Client, slices.Sorted(maps.Keys(topics)))
	if err != nil {
		return nil, err
	}
	access, err := AccessOf(found)
	return access.Missing, err
}

// DeadLetters creates a dead-letter topic.
func (c *Creator) DeadLetters(name string, source *sarama.TopicMetadata) error {
	keep := "-1"
	settings := map[string]*string{"retention.ms": &keep}
	for k, v := range c.Spec.Config {
		settings[k] = &v
	}
	return c.create("dead-letter topic", name, source, settings)
}

// Retries creates a retry topic. Compaction would keep only the last copy of a key.
func (c *Creator) Retries(name string, source *sarama.TopicMetadata) error {
	policy := "delete"
	settings := map[string]*string{"cleanup.policy": &policy}
	for k, v := range c.Spec.Config {
		if k != "retention.ms" && k != "cleanup.policy" {
			settings[k] = &v
		}
	}
	return c.create("retry topic", name, source, settings)
}

// create creates a topic with the partitions and replicas of its source, unless Spec sets others. A
// broker's default, which may be a single replica, is never used (K-36).
func (c *Creator) create(
	kind, name string, source *sarama.TopicMetadata, settings map[string]*string,
) error {
	detail := &sarama.TopicDetail{
		NumPartitions: c.Spec.Partitions, ReplicationFactor: c.Spec.ReplicationFactor,
		ConfigEntries: settings,
	}
	if detail.NumPartitions == 0 {
		detail.NumPartitions = int32(len(source.Partitions))
	}
	if detail.ReplicationFactor == 0 && len(source.Partitions) > 0 {
		detail.ReplicationFactor = int16(len(source.Partitions[0].Replicas))
	}
	err := c.Admin.CreateTopic(name, detail, false)
	switch {
	case err == nil:
		c.Log.Info(kind+" created", "topic", name,
			"partitions", detail.NumPartitions, "replicas", detail.ReplicationFactor)
		return nil
	case errors.Is(err, sarama.ErrTopicAlreadyExists): // another instance was first
		return nil
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed),
		errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		var own []string
		for k, v := range settings {
			own = append(own, k+"="+*v)
		}
		slices.Sort(own)
		return fmt.Errorf("%w: no right to create %s %s: create it: %s; or grant the right: %s: %w",
			runner.ErrUnauthorized, kind, name, c.Commands.Create(name, source, own...),
			c.Commands.Grant("topic", name, "Create"), err)
	}
	return fmt.Errorf("create %s %s: %w", kind, name, err)
}
