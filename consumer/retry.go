package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// This file is about the topics a group reads beside those of its configuration: one for each delay that a handler declares
// (copies of events for a later attempt), and one for dead letters that are replayed. They are the group's own: their names
// hold its name, and their events have its scope, since a copy is the event of its source record (rule 14).

// Topics returns what to subscribe to for the events of sources: the sources, their topics for later attempts, if a
// handler declares any, and their topics for replayed dead letters ([idem.RetryTopic] with the delay and with none). Give
// it to every Consume of the group. sarama consumes nothing while one of them does not exist: create them, or leave
// out those of delay zero, and no dead letter can be replayed. A [Consumer] does this itself.
//
// Begin at the oldest record where nothing is committed: with sarama.OffsetNewest, copies that are written before the first
// assignment never run.
func (h *GroupHandler) Topics(sources ...string) []string {
	topics := slices.Clone(sources)
	for _, source := range sources {
		topics = append(topics, h.retryTopics(source)...)
		topics = append(topics, idem.RetryTopic(source, h.cfg.Group, 0))
	}
	return topics
}

// retryTopics are those with a delay. Each of them is needed: where copies are written they must be read.
func (h *GroupHandler) retryTopics(source string) (topics []string) {
	for _, d := range h.delays {
		topics = append(topics, idem.RetryTopic(source, h.cfg.Group, d))
	}
	return topics
}

// sourceOf returns the source that a topic of the group's own, for later attempts or replays, belongs to.
func sourceOf(topic, group string) (source string, ok bool) {
	infix := idem.RetryTopic("", group, 0)
	at := strings.LastIndex(topic, infix)
	if at <= 0 {
		return "", false
	}
	source, rest := topic[:at], topic[at+len(infix):]
	if rest == "" {
		return source, true
	}
	delay, err := time.ParseDuration(strings.TrimPrefix(rest, "."))
	return source, err == nil && idem.RetryTopic(source, group, delay) == topic
}

func isRetryTopic(topic, group string) bool {
	_, ok := sourceOf(topic, group)
	return ok
}

// checkSources refuses the group's own topics as sources: what is read from them are copies, and copies of copies would go
// to topics nobody knows of.
func (c Config) checkSources() (problems []error) {
	if c.Group == "" {
		return nil
	}
	for _, t := range c.Topics {
		if isRetryTopic(t, c.Group) {
			problems = append(problems, fmt.Errorf("Config.Topics contains %q, a retry topic of this group: these are read by themselves, "+
				"name the source topic only", t))
		}
	}
	return problems
}

// fromTheBeginning commits the beginning of retry topics where nothing is committed yet, for a group that begins at the newest
// record elsewhere: what lies in them was written by the group itself, and is never to be skipped. sarama knows one
// setting for all topics. Partitions of other members are included, as those that a cooperative rebalance adds to a session are
// not seen at its start.
func (c *Consumer) fromTheBeginning(client sarama.Client, sess sarama.ConsumerGroupSession) error {
	if c.cfg.Start != Newest {
		return nil
	}
	begin, err := c.retryOffsetsMissing(client)
	if err != nil || len(begin) == 0 {
		return err
	}
	commit := &sarama.OffsetCommitRequest{
		Version: 7, ConsumerGroup: c.cfg.Group, ConsumerGroupGeneration: sess.GenerationID(), ConsumerID: sess.MemberID(),
	}
	if id := c.sarama.Consumer.Group.InstanceId; id != "" {
		commit.GroupInstanceId = &id
	}
	for p, oldest := range begin {
		commit.AddBlock(p.topic, p.id, oldest, 0, "")
		sess.MarkOffset(p.topic, p.id, oldest, "") // if it is ours, the session has read already that there is none
	}
	coordinator, err := client.Coordinator(c.cfg.Group)
	if err != nil {
		return err
	}
	answer, err := coordinator.CommitOffset(commit)
	if err != nil {
		return fmt.Errorf("commit the beginning of retry topics: %w", err)
	}
	for _, ids := range answer.Errors {
		for _, kerr := range ids {
			if !errors.Is(kerr, sarama.ErrNoError) {
				return fmt.Errorf("commit the beginning of retry topics: %w", kerr)
			}
		}
	}
	return nil
}

// retryOffsetsMissing returns the partitions of retry topics of which nothing is committed, with their oldest offsets.
func (c *Consumer) retryOffsetsMissing(client sarama.Client) (map[partition]int64, error) {
	partitions := make(map[string][]int32)
	for _, topic := range c.topics.now() {
		if isRetryTopic(topic, c.cfg.Group) {
			ids, err := client.Partitions(topic)
			if err != nil {
				return nil, fmt.Errorf("partitions of %s: %w", topic, err)
			}
			partitions[topic] = ids
		}
	}
	if len(partitions) == 0 {
		return nil, nil
	}
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return nil, err
	}
	committed, err := admin.ListConsumerGroupOffsets(c.cfg.Group, partitions)
	if err != nil {
		return nil, fmt.Errorf("offsets of retry topics: %w", err)
	}
	begin := make(map[partition]int64)
	for topic, ids := range partitions {
		for _, id := range ids {
			b := committed.GetBlock(topic, id)
			if b == nil || !errors.Is(b.Err, sarama.ErrNoError) {
				return nil, fmt.Errorf("offset of %s/%d: %w", topic, id, sarama.ErrIncompleteResponse)
			}
			if b.Offset >= 0 {
				continue
			}
			oldest, err := client.GetOffset(topic, id, sarama.OffsetOldest)
			if err != nil {
				return nil, fmt.Errorf("oldest offset of %s/%d: %w", topic, id, err)
			}
			begin[partition{topic, id}] = oldest
		}
	}
	return begin, nil
}
