package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/dedup"
)

// topicWait is how long missing topics are waited for: one that was created a moment ago is not known everywhere yet.
const topicWait = 3 * time.Second

// prepareTopics makes sure that all topics exist that are needed. Errors other than fatal ones are worth another try.
func (c *Consumer) prepareTopics(ctx context.Context, client sarama.Client) error {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	sources, err := awaitTopics(ctx, admin, c.cfg.Topics)
	if err != nil {
		return err
	}
	if err := c.findFormerTiers(admin); err != nil {
		return err
	}
	if err := c.prepareRetries(ctx, admin, sources); err != nil || c.own == nil {
		return err // the letters of a foreign producer may go to another cluster
	}
	letters := make(map[string]*sarama.TopicMetadata, len(sources))
	for _, source := range sources {
		letters[c.cfg.DeadLetterTopic(source.Name)] = source
	}
	err = c.createMissing(admin, letters, c.createLetters)
	if err == nil {
		_, err = awaitTopics(ctx, admin, slices.Sorted(maps.Keys(letters)))
	}
	var gone *TopicError
	if errors.As(err, &gone) {
		gone.DeadLetters = true
	}
	return err
}

// createMissing creates those of the topics, each in the shape of its source, that do not exist, if that is wanted.
func (c *Consumer) createMissing(admin sarama.ClusterAdmin, topics map[string]*sarama.TopicMetadata,
	create func(sarama.ClusterAdmin, string, *sarama.TopicMetadata) error,
) error {
	if c.cfg.CreateDeadLetterTopics == nil || len(topics) == 0 {
		return nil
	}
	missing, err := missingTopics(admin, slices.Sorted(maps.Keys(topics)))
	if err != nil {
		return err
	}
	for _, name := range missing {
		if err := create(admin, name, topics[name]); err != nil {
			return err
		}
	}
	return nil
}

// awaitTopics returns the topics when all are there, and a *TopicError if some are not after a while.
func awaitTopics(ctx context.Context, admin sarama.ClusterAdmin, names []string) ([]*sarama.TopicMetadata, error) {
	deadline := time.Now().Add(topicWait)
	for {
		topics, err := admin.DescribeTopics(names)
		if err != nil {
			return nil, fmt.Errorf("look for topics: %w", err)
		}
		missing, err := missingOf(topics)
		if err != nil || len(missing) == 0 {
			return topics, err
		}
		if time.Now().After(deadline) {
			return nil, &TopicError{Topics: missing}
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func missingTopics(admin sarama.ClusterAdmin, names []string) ([]string, error) {
	topics, err := admin.DescribeTopics(names)
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	return missingOf(topics)
}

func missingOf(topics []*sarama.TopicMetadata) (missing []string, err error) {
	for _, t := range topics {
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition), errors.Is(t.Err, sarama.ErrInvalidTopic):
			missing = append(missing, t.Name)
		case t.Err != sarama.ErrNoError && !errors.Is(t.Err, sarama.ErrLeaderNotAvailable):
			return nil, fmt.Errorf("topic %s: %w", t.Name, t.Err)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// createLetters creates a dead-letter topic.
func (c *Consumer) createLetters(admin sarama.ClusterAdmin, name string, source *sarama.TopicMetadata) error {
	keep := "-1"
	settings := map[string]*string{"retention.ms": &keep}
	for k, v := range c.cfg.CreateDeadLetterTopics.Config {
		settings[k] = &v
	}
	return c.createTopic(admin, "dead-letter topic", name, source, settings)
}

// createTopic creates a topic in the shape of its source, unless the configuration says otherwise: never one with a single
// replica because that is a broker's default (K-36).
func (c *Consumer) createTopic(admin sarama.ClusterAdmin, kind, name string, source *sarama.TopicMetadata, settings map[string]*string) error {
	spec := c.cfg.CreateDeadLetterTopics
	detail := &sarama.TopicDetail{NumPartitions: spec.Partitions, ReplicationFactor: spec.ReplicationFactor, ConfigEntries: settings}
	if detail.NumPartitions == 0 {
		detail.NumPartitions = int32(len(source.Partitions))
	}
	if detail.ReplicationFactor == 0 && len(source.Partitions) > 0 {
		detail.ReplicationFactor = int16(len(source.Partitions[0].Replicas))
	}
	err := admin.CreateTopic(name, detail, false)
	switch {
	case err == nil:
		c.log.Info(kind+" created", "topic", name, "partitions", detail.NumPartitions, "replicas", detail.ReplicationFactor)
		return nil
	case errors.Is(err, sarama.ErrTopicAlreadyExists): // another instance was quicker
		return nil
	}
	return fmt.Errorf("create %s %s: %w", kind, name, err)
}

// checkLedgers lets every ledger look at its own settings. One that is down is waited for; one that is unsafe ends Run.
func (c *Consumer) checkLedgers(ctx context.Context) error {
	for _, store := range c.handler.proc.Stores() {
		checker, ok := store.(dedup.Checker)
		if !ok {
			continue
		}
		name := fmt.Sprintf("%T", store)
		var back backoff
		for {
			warnings, err := check(ctx, checker)
			if err == nil {
				for _, w := range warnings {
					c.log.Warn("ledger: "+w, "ledger", name)
				}
				if back.tries > 0 {
					c.log.Info("ledger is there", "ledger", name)
				}
				break
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("ledger %s must not be used: %w", name, err)
			}
			if back.tries == 0 {
				c.log.Warn("ledger unavailable at start, waiting for it", "ledger", name, "error", c.cfg.errorText(err))
			}
			if err := back.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func check(ctx context.Context, checker dedup.Checker) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return checker.Check(ctx)
}
