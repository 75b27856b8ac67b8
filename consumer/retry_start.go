package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// prepareRetries creates the missing retry topics if that is wanted, and makes sure that those with a delay exist: a copy
// that cannot be written would hold up its partition.
func (c *Consumer) prepareRetries(ctx context.Context, client sarama.Client, admin sarama.ClusterAdmin, sources []*sarama.TopicMetadata) error {
	all, needed := make(map[string]*sarama.TopicMetadata), make(map[string]time.Duration)
	for _, source := range sources {
		all[idem.RetryTopic(source.Name, c.cfg.Group, 0)] = source
		for _, d := range c.handler.delays {
			name := idem.RetryTopic(source.Name, c.cfg.Group, d)
			all[name], needed[name] = source, d
		}
	}
	var created []string
	err := c.createMissing(client, admin, all, func(admin sarama.ClusterAdmin, name string, source *sarama.TopicMetadata) error {
		err := c.createRetries(admin, name, source)
		if _, must := needed[name]; !must && errors.Is(err, ErrUnauthorized) { // only replays need it (rule 46)
			c.log.Warn("topic for replayed dead letters cannot be created", "topic", name, "error", c.cfg.errorText(err))
			return nil
		}
		created = append(created, name)
		return err
	})
	if err == nil {
		_, err = c.awaitTopics(ctx, client, slices.Sorted(maps.Keys(needed)), opRead, opWrite)
	}
	var gone *TopicError
	if errors.As(err, &gone) {
		gone.Retries, gone.Fix = true, c.cfg.createCommands(gone.Topics, all, settingRetries)
	}
	if err != nil {
		return err
	}
	if len(created) > 0 { // those without a delay too, so that they are subscribed to at once
		var gone *TopicError
		if _, err := c.awaitTopics(ctx, client, created); err != nil && !errors.As(err, &gone) && !errors.Is(err, ErrUnauthorized) {
			return err // what is missing, or was created without the right to see it, is for the next look
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		c.keepLongEnough(admin, name, needed[name], slices.Contains(created, name))
	}
	return nil
}

// findFormerTiers subscribes also to retry topics with a delay that no handler declares any longer: what was deployed before may
// have left copies there, which only this group reads. Where they lie says nothing about what becomes of them.
func (c *Consumer) findFormerTiers(client sarama.Client) error {
	all, err := askTopics(client, nil)
	if err != nil {
		return err
	}
	var former []string
	for _, t := range all {
		source, ok := sourceOf(t.Name, c.cfg.Group)
		if ok && errors.Is(t.Err, sarama.ErrNoError) && slices.Contains(c.cfg.Topics, source) && c.topics.also(t.Name) {
			former = append(former, t.Name)
		}
	}
	if len(former) > 0 {
		slices.Sort(former)
		c.log.Warn("retry topics of delays that no handler declares are read too, for what was left there: delete them when nothing is",
			"topics", former)
	}
	return nil
}

// createRetries creates a retry topic. A compacted one would keep the last copy of a key only.
func (c *Consumer) createRetries(admin sarama.ClusterAdmin, name string, source *sarama.TopicMetadata) error {
	policy := "delete"
	settings := map[string]*string{"cleanup.policy": &policy}
	for k, v := range c.cfg.CreateDeadLetterTopics.Config {
		if k != "retention.ms" && k != "cleanup.policy" {
			settings[k] = &v
		}
	}
	return c.createTopic(admin, "retry topic", name, source, settings)
}

// retryReserve is how much longer than its delay a copy should be kept at least: so long may its consumers be away.
const retryReserve = 24 * time.Hour

// keepLongEnough looks whether a topic deletes copies before they are due. A topic of our making is mended; of others a
// warning tells, and so does not to be allowed to look (rule 46).
func (c *Consumer) keepLongEnough(admin sarama.ClusterAdmin, name string, delay time.Duration, ours bool) {
	keep, policy, err := retentionOf(admin, name)
	if err != nil {
		c.log.Warn("not known how long a retry topic keeps its copies: grant DescribeConfigs on it", "topic", name,
			"error", c.cfg.errorText(err), "grant", c.cfg.aclCommand("topic", name, "DescribeConfigs"))
		return
	}
	want := delay + retryReserve
	if policy != "delete" && policy != "" {
		c.log.Warn("retry topic is compacted: of copies with one key all but the last are lost, set cleanup.policy=delete", "topic", name)
	}
	if keep < 0 || keep >= want {
		return
	}
	if ours {
		value := strconv.FormatInt(want.Milliseconds(), 10)
		err := admin.IncrementalAlterConfig(sarama.TopicResource, name, map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}, false)
		if err == nil {
			return
		}
		c.log.Warn("retention of a retry topic cannot be set: grant AlterConfigs on it", "topic", name,
			"error", c.cfg.errorText(err), "grant", c.cfg.aclCommand("topic", name, "AlterConfigs"))
	}
	c.log.Warn("retry topic keeps its copies hardly longer than their delay: they are lost if no consumer runs for a while",
		"topic", name, "retention", keep, "delay", delay, "at_least", want)
}

// retentionOf returns how long a topic keeps records, negative without end, and how it cleans up.
func retentionOf(admin sarama.ClusterAdmin, name string) (keep time.Duration, policy string, err error) {
	answers, err := admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: name, ConfigNames: []string{"retention.ms", "cleanup.policy"},
	}}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return 0, "", err
	}
	if len(answers) != 1 {
		return 0, "", sarama.ErrIncompleteResponse
	}
	if code := answers[0].ErrorCode; !errors.Is(code, sarama.ErrNoError) {
		return 0, "", code
	}
	keep = -1
	for _, e := range answers[0].Configs {
		switch e.Name {
		case "cleanup.policy":
			policy = e.Value
		case "retention.ms":
			ms, err := strconv.ParseInt(e.Value, 10, 64)
			if err != nil {
				return 0, "", fmt.Errorf("retention.ms is %q", e.Value)
			}
			if keep = -1; ms >= 0 {
				keep = time.Duration(min(ms, int64(time.Duration(1<<63-1)/time.Millisecond))) * time.Millisecond
			}
		}
	}
	return keep, policy, nil
}
