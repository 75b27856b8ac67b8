package kgoidem

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/runner"
)

// span is the log of a partition.
type span struct {
	oldest  int64 // the first offset
	newest  int64 // the offset of the next record to be written
	visible int64 // the last stable offset: no open transaction lies before it
}

// The special times of a request for offsets, and the isolation levels.
const (
	atEnd, atStart             = -1, -2
	uncommitted, onlyCommitted = int8(0), int8(1)
)

// spans asks the leaders for the logs of partitions.
func (r *Runner) spans(ctx context.Context, of []partition) (map[partition]span, error) {
	oldest, err := r.offsets(ctx, of, atStart, uncommitted)
	if err != nil {
		return nil, fmt.Errorf("read the oldest offsets: %w", err)
	}
	newest, err := r.offsets(ctx, of, atEnd, uncommitted)
	if err != nil {
		return nil, fmt.Errorf("read the newest offsets: %w", err)
	}
	visible, err := r.offsets(ctx, of, atEnd, onlyCommitted)
	if err != nil {
		return nil, fmt.Errorf("read the ends of the visible logs: %w", err)
	}
	logs := make(map[partition]span, len(of))
	for _, p := range of {
		logs[p] = span{oldest[p], newest[p], visible[p]}
	}
	return logs, nil
}

// newTopicWait is how long the leaders of a new topic are waited for.
const newTopicWait = 3 * time.Second

// offsets returns an offset for each partition, or an error.
func (r *Runner) offsets(
	ctx context.Context, of []partition, at int64, isolation int8,
) (map[partition]int64, error) {
	deadline := time.Now().Add(newTopicWait)
	for {
		offsets, err := r.askLeaders(ctx, of, at, isolation)
		if !isAny(err, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable) ||
			time.Now().After(deadline) {
			return offsets, err
		}
		if err := runner.Pause(ctx, freshMetadata); err != nil {
			return nil, err
		}
	}
}

func (r *Runner) askLeaders(
	ctx context.Context, of []partition, at int64, isolation int8,
) (map[partition]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	topics := make(map[string][]kmsg.ListOffsetsRequestTopicPartition)
	for _, p := range of {
		q := kmsg.NewListOffsetsRequestTopicPartition()
		q.Partition, q.Timestamp, q.CurrentLeaderEpoch = p.id, at, -1
		topics[p.topic] = append(topics[p.topic], q)
	}
	for topic, partitions := range topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	answer, err := req.RequestWith(ctx, r.plain)
	if err != nil {
		return nil, err
	}
	offsets := make(map[partition]int64, len(of))
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err)
			}
			offsets[partition{t.Topic, p.Partition}] = p.Offset
		}
	}
	for _, p := range of {
		if _, ok := offsets[p]; !ok {
			return nil, fmt.Errorf("%s/%d: the answer lacks the partition", p.topic, p.id)
		}
	}
	return offsets, nil
}
