package consumer

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

// groupOffsets reads and writes the group's committed offsets at the start of sessions.
type groupOffsets struct {
	group  string
	client sarama.Client
}

// none reports whether topics have no committed offset of the group.
func (c *groupOffsets) none(admin sarama.ClusterAdmin, topics []string) (none bool, err error) {
	partitions := make(map[string][]int32, len(topics))
	for _, topic := range topics {
		if partitions[topic], err = c.client.Partitions(topic); err != nil {
			return false, fmt.Errorf("partitions of %s: %w", topic, err)
		}
	}
	offsets, err := admin.ListConsumerGroupOffsets(c.group, partitions)
	if err != nil {
		return false, fmt.Errorf("offsets of group %s: %w", c.group, err)
	}
	none = true
	for topic, blocks := range offsets.Blocks {
		for id, block := range blocks {
			if !errors.Is(block.Err, sarama.ErrNoError) {
				return false, fmt.Errorf("offsets of group %s, %s/%d: %w", c.group, topic, id,
					block.Err)
			}
			none = none && block.Offset < 0
		}
	}
	return none, nil
}

// beginRetries commits the oldest offsets of retry topics without committed offsets. A group that
// begins at the newest record of the sources needs this: the group itself wrote the copies, and may
// skip no copy. The setting of sarama is for all topics.
//
// Partitions of other members are included, because partitions that a cooperative rebalance adds to
// a session are not known at the start.
func (c *groupOffsets) beginRetries(sess sarama.ConsumerGroupSession, topics []string) error {
	begin, err := c.missing(topics)
	if err != nil || len(begin) == 0 {
		return err
	}
	commit := &sarama.OffsetCommitRequest{
		Version: 7, ConsumerGroup: c.group, ConsumerGroupGeneration: sess.GenerationID(),
		ConsumerID: sess.MemberID(),
	}
	if id := c.client.Config().Consumer.Group.InstanceId; id != "" {
		commit.GroupInstanceId = &id
	}
	for p, oldest := range begin {
		commit.AddBlock(p.topic, p.id, oldest, 0, "")
		// an assigned partition was read as uncommitted already
		sess.MarkOffset(p.topic, p.id, oldest, "")
	}
	coordinator, err := c.client.Coordinator(c.group)
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

// missing returns the partitions of retry topics without a committed offset, with their oldest
// offsets.
func (c *groupOffsets) missing(topics []string) (map[partition]int64, error) {
	partitions := make(map[string][]int32)
	for _, topic := range topics {
		if runner.IsRetry(topic, c.group) {
			ids, err := c.client.Partitions(topic)
			if err != nil {
				return nil, fmt.Errorf("partitions of %s: %w", topic, err)
			}
			partitions[topic] = ids
		}
	}
	if len(partitions) == 0 {
		return nil, nil
	}
	admin, err := sarama.NewClusterAdminFromClient(c.client) // closing it would close the client
	if err != nil {
		return nil, err
	}
	offsets, err := admin.ListConsumerGroupOffsets(c.group, partitions)
	if err != nil {
		return nil, fmt.Errorf("offsets of retry topics: %w", err)
	}
	begin := make(map[partition]int64)
	for topic, ids := range partitions {
		for _, id := range ids {
			b := offsets.GetBlock(topic, id)
			if b == nil || !errors.Is(b.Err, sarama.ErrNoError) {
				return nil, fmt.Errorf("offset of %s/%d: %w", topic, id,
					sarama.ErrIncompleteResponse)
			}
			if b.Offset >= 0 {
				continue
			}
			oldest, err := c.client.GetOffset(topic, id, sarama.OffsetOldest)
			if err != nil {
				return nil, fmt.Errorf("oldest offset of %s/%d: %w", topic, id, err)
			}
			begin[partition{topic, id}] = oldest
		}
	}
	return begin, nil
}
