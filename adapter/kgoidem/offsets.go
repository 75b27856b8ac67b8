package kgoidem

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/runner"
)

// partition names a partition of a topic.
type partition = runner.TopicPartition

// offsets is a [runner.Cluster] on a franz-go client.
type offsets struct{ admin }

var _ runner.Cluster = offsets{}

// The special times of a request for offsets, and the isolation levels.
const (
	atEnd, atStart             = -1, -2
	uncommitted, onlyCommitted = int8(0), int8(1)
)

// Partitions implements [runner.Offsets].
func (o offsets) Partitions(ctx context.Context, topics []string) (map[string][]int32, error) {
	found, err := o.Topics(ctx, topics)
	if err != nil {
		return nil, err
	}
	return runner.PartitionsOf(found, kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition)
}

// Committed implements [runner.Offsets].
func (o offsets) Committed(
	ctx context.Context, group string, partitions map[string][]int32,
) (map[partition]int64, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	var topics []string
	for topic := range partitions {
		topics = append(topics, topic)
	}
	answer, err := kadm.NewClient(o.cl).FetchOffsetsForTopics(ctx, group, topics...)
	if err != nil {
		return nil, fmt.Errorf("offsets of group %s: %w", group, err)
	}
	all := make(map[partition]int64)
	for topic, ids := range partitions {
		for _, id := range ids {
			found, ok := answer.Lookup(topic, id)
			if !ok {
				return nil, fmt.Errorf("committed offset of %s/%d: %w", topic, id, runner.ErrNoAnswer)
			}
			if found.Err != nil {
				return nil, fmt.Errorf("committed offset of %s/%d: %w", topic, id, found.Err)
			}
			if found.At >= 0 {
				all[partition{Topic: topic, Partition: id}] = found.At
			}
		}
	}
	return all, nil
}

// Oldest implements [runner.Offsets].
func (o offsets) Oldest(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return o.all(ctx, partitions, atStart, uncommitted)
}

// Newest implements [runner.Offsets].
func (o offsets) Newest(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return o.all(ctx, partitions, atEnd, uncommitted)
}

// Ends implements [runner.Offsets].
func (o offsets) Ends(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return runner.Answered(o.ask(ctx, partitions, atEnd, onlyCommitted))
}

// AllEnds implements [runner.Cluster].
func (o offsets) AllEnds(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return o.all(ctx, partitions, atEnd, onlyCommitted)
}

// newTopicWait is how long the leaders of a new topic are waited for.
const newTopicWait = 3 * time.Second

// all waits for the leaders of new topics. A partition without an answer is left out, and the error
// is a [*runner.OffsetError]. Offsets that were found stay found while others are asked for again.
func (o offsets) all(
	ctx context.Context, partitions map[string][]int32, at int64, isolation int8,
) (map[partition]int64, error) {
	deadline, found := time.Now().Add(newTopicWait), make(map[partition]int64)
	for {
		some, err := o.ask(ctx, missing(partitions, found), at, isolation)
		maps.Copy(found, some)
		if !isAny(err, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable) ||
			time.Now().After(deadline) || runner.Pause(ctx, freshMetadata) != nil {
			return found, err
		}
	}
}

// missing returns the partitions without an offset in found.
func missing(partitions map[string][]int32, found map[partition]int64) map[string][]int32 {
	rest := make(map[string][]int32, len(partitions))
	for topic, ids := range partitions {
		for _, id := range ids {
			if _, ok := found[partition{Topic: topic, Partition: id}]; !ok {
				rest[topic] = append(rest[topic], id)
			}
		}
	}
	return rest
}

// ask asks the leaders, each with a request of its own. A partition without an answer is left out,
// and the error is a [*runner.OffsetError].
func (o offsets) ask(
	ctx context.Context, partitions map[string][]int32, at int64, isolation int8,
) (map[partition]int64, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	for topic, ids := range partitions {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, id := range ids {
			q := kmsg.NewListOffsetsRequestTopicPartition()
			q.Partition, q.Timestamp, q.CurrentLeaderEpoch = id, at, -1
			t.Partitions = append(t.Partitions, q)
		}
		req.Topics = append(req.Topics, t)
	}
	all, errs := make(map[partition]int64), make(map[partition]error)
	for _, shard := range o.cl.RequestSharded(ctx, req) {
		take(shard, all, errs)
	}
	return all, runner.MissingOffset(partitions, all, errs)
}

// take notes the offsets and the errors of one answer.
func take(shard kgo.ResponseShard, all map[partition]int64, errs map[partition]error) {
	if asked, ok := shard.Req.(*kmsg.ListOffsetsRequest); ok && shard.Err != nil {
		for _, t := range asked.Topics {
			for _, p := range t.Partitions {
				errs[partition{Topic: t.Topic, Partition: p.Partition}] = shard.Err
			}
		}
		return
	}
	answer, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
	if !ok {
		return
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			at := partition{Topic: t.Topic, Partition: p.Partition}
			if errs[at] = kerr.ErrorForCode(p.ErrorCode); errs[at] == nil {
				all[at] = p.Offset
			}
		}
	}
}
