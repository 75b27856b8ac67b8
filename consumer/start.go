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

// topicLook is how long after a look comes the next one.
const topicLook = 250 * time.Millisecond

// prepareTopics makes sure that all topics exist that are needed. Errors other than fatal ones are worth another try.
func (c *Consumer) prepareTopics(ctx context.Context, client sarama.Client) error {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	sources, err := c.awaitTopics(ctx, client, c.cfg.Topics, opRead)
	var gone *TopicError
	if errors.As(err, &gone) {
		gone.Fix = c.cfg.createCommands(gone.Topics, nil)
	}
	if err != nil {
		return err
	}
	if err := c.cfg.checkGroup(client); err != nil {
		return err
	}
	if err := c.findFormerTiers(client); err != nil {
		return err
	}
	if err := c.prepareRetries(ctx, client, admin, sources); err != nil || c.own == nil {
		return err // the dead letters of a foreign producer may go to another cluster
	}
	letters := make(map[string]*sarama.TopicMetadata, len(sources))
	for _, source := range sources {
		letters[c.cfg.DeadLetterTopic(source.Name)] = source
	}
	err = c.createMissing(client, admin, letters, c.createDeadLetters)
	if err == nil {
		_, err = c.awaitTopics(ctx, client, slices.Sorted(maps.Keys(letters)), opWrite)
	}
	if errors.As(err, &gone) {
		gone.DeadLetters, gone.Fix = true, c.cfg.createCommands(gone.Topics, letters, settingDeadLetters)
	}
	return err
}

// createMissing creates those of the topics, each in the shape of its source, that do not exist, if that is wanted. Of one that
// this client has no right to it is not known whether it does.
func (c *Consumer) createMissing(client sarama.Client, admin sarama.ClusterAdmin, topics map[string]*sarama.TopicMetadata,
	create func(sarama.ClusterAdmin, string, *sarama.TopicMetadata) error,
) error {
	if c.cfg.CreateDeadLetterTopics == nil || len(topics) == 0 {
		return nil
	}
	there, err := askTopics(client, slices.Sorted(maps.Keys(topics)))
	if err != nil {
		return err
	}
	found, err := accessOf(there)
	if err != nil {
		return err
	}
	for _, name := range found.missing {
		if err := create(admin, name, topics[name]); err != nil {
			return err
		}
	}
	return nil
}

// awaitTopics returns the topics when all are there and this client may do all of ops with them. If that is not so after a
// while, the error is a *TopicError, or says which rights are missing.
func (c *Consumer) awaitTopics(ctx context.Context, client sarama.Client, names []string, ops ...sarama.AclOperation) ([]*sarama.TopicMetadata, error) {
	if len(names) == 0 {
		return nil, nil
	}
	deadline := time.Now().Add(topicWait)
	for {
		topics, err := askTopics(client, names)
		if err != nil {
			return nil, err
		}
		found, err := accessOf(topics, ops...)
		switch late := !time.Now().Before(deadline); {
		case err != nil:
			return nil, err
		case len(found.missing)+len(found.denied) == 0:
			return topics, nil
		case late && len(found.missing) > 0: // those that are denied may be missing too, and come next
			return nil, &TopicError{Topics: found.missing}
		case late:
			return nil, c.cfg.deniedError(found.denied, ops...)
		}
		if err := pause(ctx, topicLook); err != nil {
			return nil, err
		}
	}
}

// createLetters creates a dead-letter topic.
func (c *Consumer) createDeadLetters(admin sarama.ClusterAdmin, name string, source *sarama.TopicMetadata) error {
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
	case isAny(err, sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed):
		var own []string
		for k, v := range settings {
			own = append(own, k+"="+*v)
		}
		slices.Sort(own)
		return fmt.Errorf("%w: no right to create %s %s: create it: %s; or grant the right: %s: %w", ErrUnauthorized, kind, name,
			c.cfg.createCommand(name, source, own...), c.cfg.aclCommand("topic", name, "Create"), err)
	}
	return fmt.Errorf("create %s %s: %w", kind, name, err)
}

// setupWatch tells an error of a store's set-up from an outage. Something may be made in this moment by another process, so
// it is looked for again for as long as a missing topic is.
type setupWatch struct{ since time.Time }

// over reports whether err is to end Run.
func (w *setupWatch) over(err error) bool {
	var setup *dedup.SetupError
	if !errors.As(err, &setup) {
		w.since = time.Time{}
		return false
	}
	if w.since.IsZero() {
		w.since = time.Now()
	}
	return time.Since(w.since) >= topicWait
}

// wait waits before the store is asked again: briefly while it ends Run soon.
func (w *setupWatch) wait(ctx context.Context, back *backoff) error {
	if w.since.IsZero() {
		return back.wait(ctx)
	}
	back.tries++
	return pause(ctx, topicLook)
}

// checkStores lets every store look at its own settings. One that is down is waited for; one that is unsafe, or not set up,
// ends Run.
func (c *Consumer) checkStores(ctx context.Context) error {
	for _, store := range c.handler.proc.Stores() {
		checker, ok := store.(dedup.Checker)
		if !ok {
			continue
		}
		name := fmt.Sprintf("%T", store)
		var back backoff
		var setup setupWatch
		for {
			warnings, err := check(ctx, checker)
			if err == nil {
				for _, w := range warnings {
					c.log.Warn("store: "+w, "store", name)
				}
				if back.tries > 0 {
					c.log.Info("store is there", "store", name)
				}
				break
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if setup.over(err) {
				return fmt.Errorf("store %s: %w", name, err)
			}
			if !errors.Is(err, dedup.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("store %s must not be used: %w", name, err)
			}
			if back.tries == 0 {
				c.log.Warn("store unavailable at start, waiting for it", "store", name, "error", c.cfg.errorText(err))
			}
			if err := setup.wait(ctx, &back); err != nil {
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
