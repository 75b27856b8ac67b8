package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

// logOffsets is a runner.Offsets on a sarama client. The calls take no context: the end of the
// connections ends them.
type logOffsets struct{ client sarama.Client }

var _ runner.Offsets = logOffsets{}

// Partitions implements runner.Offsets.
func (o logOffsets) Partitions(_ context.Context, topics []string) (map[string][]int32, error) {
	partitions := make(map[string][]int32, len(topics))
	for _, topic := range topics {
		ids, err := o.client.Partitions(topic)
		if err != nil {
			return nil, fmt.Errorf("partitions of %s: %w", topic, err)
		}
		partitions[topic] = ids
	}
	return partitions, nil
}

// Committed implements runner.Offsets.
func (o logOffsets) Committed(
	_ context.Context, group string, partitions map[string][]int32,
) (map[runner.TopicPartition]int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(o.client) // closing it would close the client
	if err != nil {
		return nil, fmt.Errorf("read committed offsets: %w", err)
	}
	answer, err := admin.ListConsumerGroupOffsets(group, partitions)
	if err != nil {
		return nil, fmt.Errorf("read committed offsets: %w", err)
	}
	committed := make(map[runner.TopicPartition]int64)
	for topic, ids := range partitions {
		for _, id := range ids {
			block, err := answer.GetBlock(topic, id), sarama.ErrIncompleteResponse
			if block != nil {
				err = block.Err
			}
			if !errors.Is(err, sarama.ErrNoError) {
				return nil, fmt.Errorf("read committed offset of %s/%d: %w", topic, id, err)
			}
			if block.Offset >= 0 {
				committed[runner.TopicPartition{Topic: topic, Partition: id}] = block.Offset
			}
		}
	}
	return committed, nil
}

// Oldest implements runner.Offsets.
func (o logOffsets) Oldest(
	_ context.Context, partitions map[string][]int32,
) (map[runner.TopicPartition]int64, error) {
	return o.read(partitions, sarama.OffsetOldest, "oldest")
}

// Newest implements runner.Offsets.
func (o logOffsets) Newest(
	_ context.Context, partitions map[string][]int32,
) (map[runner.TopicPartition]int64, error) {
	return o.read(partitions, sarama.OffsetNewest, "newest")
}

func (o logOffsets) read(
	partitions map[string][]int32, at int64, name string,
) (map[runner.TopicPartition]int64, error) {
	offsets := make(map[runner.TopicPartition]int64)
	for topic, ids := range partitions {
		for _, id := range ids {
			offset, err := o.client.GetOffset(topic, id, at)
			if err != nil {
				return nil, fmt.Errorf("read the %s offset of %s/%d: %w", name, topic, id, err)
			}
			offsets[runner.TopicPartition{Topic: topic, Partition: id}] = offset
		}
	}
	return offsets, nil
}

// Ends implements runner.Offsets. It asks each leader once.
func (o logOffsets) Ends(
	_ context.Context, partitions map[string][]int32,
) (map[runner.TopicPartition]int64, error) {
	requests := make(map[*sarama.Broker]*sarama.OffsetRequest)
	for topic, ids := range partitions {
		for _, id := range ids {
			leader, err := o.client.Leader(topic, id)
			if err != nil {
				continue
			}
			r := requests[leader]
			if r == nil {
				r = sarama.NewOffsetRequest(o.client.Config().Version)
				r.IsolationLevel = o.client.Config().Consumer.IsolationLevel
				requests[leader] = r
			}
			r.AddBlock(topic, id, sarama.OffsetNewest, 1)
		}
	}
	ends := make(map[runner.TopicPartition]int64)
	for leader, r := range requests {
		answer, err := leader.GetAvailableOffsets(r)
		if err != nil {
			continue
		}
		for topic, blocks := range answer.Blocks {
			for id, b := range blocks {
				if errors.Is(b.Err, sarama.ErrNoError) {
					ends[runner.TopicPartition{Topic: topic, Partition: id}] = b.Offset
				}
			}
		}
	}
	return ends, nil
}

// moveOffsets commits other offsets to continue at. Assignments begin after Setup, so at those
// offsets. Without the confirmation of a broker the session must not begin: after a restart a
// partition could begin behind records that were never handled.
func moveOffsets(
	sess sarama.ConsumerGroupSession, direct *directCommits, moves []runner.Move,
) error {
	if len(moves) == 0 {
		return nil
	}
	offsets := make(map[runner.TopicPartition]int64)
	for _, m := range moves {
		offsets[m.TopicPartition] = m.To
	}
	ctx, cancel := context.WithTimeout(sess.Context(), runner.CommitWait)
	defer cancel()
	refused, err := direct.send(ctx, sess, offsets)
	for p, code := range refused {
		err = cmp.Or(err, fmt.Errorf("%s: %w", p, code))
	}
	if err != nil {
		return fmt.Errorf("commit where partitions begin: %w", err)
	}
	for _, m := range moves { // the next commit of sarama has them too
		if m.To > m.From {
			sess.MarkOffset(m.Topic, m.Partition, m.To, "")
		} else {
			sess.ResetOffset(m.Topic, m.Partition, m.To, "")
		}
	}
	return nil
}

// beginRetries commits the oldest offsets of retry topics without committed offsets. A group that
// begins at the newest record of the sources needs this, because the setting of sarama is for all
// topics.
func beginRetries(
	offsets ledOffsets, group string, sess sarama.ConsumerGroupSession, topics []string,
) error {
	begin, committed, err := runner.RetryBeginnings(sess.Context(), offsets, group, topics)
	if err != nil {
		return err
	}
	// sarama has read the offsets before Setup. Another member may have committed since, and the
	// assignment would begin at the newest record.
	for topic, ids := range sess.Claims() {
		for _, id := range ids {
			if offset, ok := committed[runner.TopicPartition{Topic: topic, Partition: id}]; ok {
				sess.MarkOffset(topic, id, offset, "")
			}
		}
	}
	if len(begin) == 0 {
		return nil
	}
	commit := &sarama.OffsetCommitRequest{
		Version: 7, ConsumerGroup: group, ConsumerGroupGeneration: sess.GenerationID(),
		ConsumerID: sess.MemberID(),
	}
	client := offsets.client
	if id := client.Config().Consumer.Group.InstanceId; id != "" {
		commit.GroupInstanceId = &id
	}
	for p, oldest := range begin {
		commit.AddBlockWithLeaderEpoch(p.Topic, p.Partition, oldest, noEpoch, 0, "")
		// an assigned partition was read as uncommitted already
		sess.MarkOffset(p.Topic, p.Partition, oldest, "")
	}
	coordinator, err := client.Coordinator(group)
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
