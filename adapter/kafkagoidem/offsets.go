package kafkagoidem

import (
	"context"
	"fmt"
	"sync"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/idem-go/idem/runner"
)

// partition names a partition of a topic.
type partition = runner.TopicPartition

// offsets is a [runner.Cluster] on clients of kafka-go.
type offsets struct{ admin }

var _ runner.Cluster = offsets{}

// The isolation levels of a request for offsets.
const uncommitted, onlyCommitted = int8(kafka.ReadUncommitted), int8(kafka.ReadCommitted)

// Partitions implements [runner.Offsets].
func (o offsets) Partitions(ctx context.Context, topics []string) (map[string][]int32, error) {
	found, err := o.Topics(ctx, topics)
	if err != nil {
		return nil, err
	}
	return runner.PartitionsOf(found, kafka.TopicAuthorizationFailed, kafka.UnknownTopicOrPartition)
}

// Committed implements [runner.Offsets].
func (o offsets) Committed(
	ctx context.Context, group string, partitions map[string][]int32,
) (map[partition]int64, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	topics := make(map[string][]int, len(partitions))
	for topic, ids := range partitions {
		for _, id := range ids {
			topics[topic] = append(topics[topic], int(id))
		}
	}
	answer, err := o.cl.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		Addr: o.addr, GroupID: group, Topics: topics,
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return nil, fmt.Errorf("offsets of group %s: %w", group, err)
	}
	known, all := make(map[partition]bool), make(map[partition]int64)
	for topic, ids := range answer.Topics {
		for _, p := range ids {
			at := partition{Topic: topic, Partition: int32(p.Partition)} //nolint:gosec // from an int32
			if p.Error != nil {
				return nil, fmt.Errorf("committed offset of %s: %w", at, p.Error)
			}
			if known[at] = true; p.CommittedOffset >= 0 {
				all[at] = p.CommittedOffset
			}
		}
	}
	for topic, ids := range partitions {
		for _, id := range ids {
			if at := (partition{Topic: topic, Partition: id}); !known[at] {
				return nil, fmt.Errorf("committed offset of %s: %w", at, runner.ErrNoAnswer)
			}
		}
	}
	return all, nil
}

// Oldest implements [runner.Offsets].
func (o offsets) Oldest(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return o.ask(ctx, partitions, kafka.FirstOffset, uncommitted)
}

// Newest implements [runner.Offsets].
func (o offsets) Newest(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return o.ask(ctx, partitions, kafka.LastOffset, uncommitted)
}

// Ends implements [runner.Offsets].
func (o offsets) Ends(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return runner.Answered(o.AllEnds(ctx, partitions))
}

// AllEnds implements [runner.Cluster].
func (o offsets) AllEnds(
	ctx context.Context, partitions map[string][]int32,
) (map[partition]int64, error) {
	return o.ask(ctx, partitions, kafka.LastOffset, onlyCommitted)
}

// ask asks the leaders, for all partitions at once. A partition without an answer is left out, and
// the error is a [*runner.OffsetError].
//
// Each partition has a request of its own. In a request for many, kafka-go connects to one leader
// after the other, so a leader that is away would hold up the others.
func (o offsets) ask(
	ctx context.Context, partitions map[string][]int32, when int64, isolation int8,
) (map[partition]int64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, errs := make(map[partition]int64), make(map[partition]error)
	var mu sync.Mutex
	var asking sync.WaitGroup
	for topic, ids := range partitions {
		for _, id := range ids {
			at := partition{Topic: topic, Partition: id}
			asking.Go(func() {
				offset, err := o.askOne(ctx, at, when, isolation)
				mu.Lock()
				defer mu.Unlock()
				if errs[at] = err; err == nil {
					all[at] = offset
				}
			})
		}
	}
	asking.Wait()
	return all, runner.MissingOffset(partitions, all, errs)
}

// askOne asks the leader of one partition.
func (o offsets) askOne(
	ctx context.Context, at partition, when int64, isolation int8,
) (int64, error) {
	answer, err := o.cl.Transport.RoundTrip(ctx, o.addr, &listoffsets.Request{
		ReplicaID: -1, IsolationLevel: isolation,
		Topics: []listoffsets.RequestTopic{{
			Topic: at.Topic, Partitions: []listoffsets.RequestPartition{{
				Partition: at.Partition, CurrentLeaderEpoch: -1, Timestamp: when,
			}},
		}},
	})
	if err != nil {
		return 0, err
	}
	found, ok := answer.(*listoffsets.Response)
	if !ok || len(found.Topics) != 1 || len(found.Topics[0].Partitions) != 1 {
		return 0, runner.ErrNoAnswer
	}
	one := found.Topics[0].Partitions[0]
	return one.Offset, errorOf(one.ErrorCode)
}

// errorOf returns the error of a code of Kafka, or nil.
func errorOf(code int16) error {
	if code == 0 {
		return nil
	}
	return kafka.Error(code)
}
