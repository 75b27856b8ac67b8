package kafkagoidem

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/listoffsets"

	"github.com/idem-go/idem/runner"
)

// partition names a partition of a topic.
type partition = runner.TopicPartition

// offsets is a [runner.Offsets] on clients of kafka-go.
type offsets struct{ admin }

var _ runner.Offsets = offsets{}

// The isolation levels of a request for offsets.
const uncommitted, onlyCommitted = int8(kafka.ReadUncommitted), int8(kafka.ReadCommitted)

// Partitions implements [runner.Offsets].
func (o offsets) Partitions(ctx context.Context, topics []string) (map[string][]int32, error) {
	found, err := o.Topics(ctx, topics)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]int32, len(topics))
	for _, t := range found {
		switch {
		case t.Err != nil:
			return nil, fmt.Errorf("partitions of %s: %w", t.Name, t.Err)
		case t.Denied:
			return nil, fmt.Errorf("partitions of %s: %w", t.Name, kafka.TopicAuthorizationFailed)
		case !t.Exists:
			return nil, fmt.Errorf("partitions of %s: %w", t.Name, kafka.UnknownTopicOrPartition)
		}
		all[t.Name] = t.Partitions
	}
	return all, nil
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
				return nil, fmt.Errorf("committed offset of %s: %w", at, errNoAnswerFor)
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
	ends, err := o.ask(ctx, partitions, kafka.LastOffset, onlyCommitted)
	var one *partitionError
	if errors.As(err, &one) {
		err = nil
	}
	return ends, err
}

// partitionError is the error of one partition. Others may have an answer.
type partitionError struct {
	partition partition
	err       error
}

// Error names the partition.
func (e *partitionError) Error() string { return fmt.Sprintf("offset of %s: %s", e.partition, e.err) }

// Unwrap returns the error of the client.
func (e *partitionError) Unwrap() error { return e.err }

// ask asks the leaders. A partition without an answer is left out, and the error is a
// [*partitionError].
func (o offsets) ask(
	ctx context.Context, partitions map[string][]int32, at int64, isolation int8,
) (map[partition]int64, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	req := &listoffsets.Request{ReplicaID: -1, IsolationLevel: isolation}
	for topic, ids := range partitions {
		t := listoffsets.RequestTopic{Topic: topic}
		for _, id := range ids {
			t.Partitions = append(t.Partitions, listoffsets.RequestPartition{
				Partition: id, CurrentLeaderEpoch: -1, Timestamp: at,
			})
		}
		req.Topics = append(req.Topics, t)
	}
	answer, err := o.cl.Transport.RoundTrip(ctx, o.addr, req)
	if err != nil {
		return nil, fmt.Errorf("offsets of partitions: %w", err)
	}
	found, ok := answer.(*listoffsets.Response)
	if !ok {
		return nil, errNoAnswerFor
	}
	all, errs := make(map[partition]int64), make(map[partition]error)
	for _, t := range found.Topics {
		for _, p := range t.Partitions {
			at := partition{Topic: t.Topic, Partition: p.Partition}
			if errs[at] = errorOf(p.ErrorCode); errs[at] == nil {
				all[at] = p.Offset
			}
		}
	}
	for topic, ids := range partitions {
		for _, id := range ids {
			at := partition{Topic: topic, Partition: id}
			if _, ok := all[at]; !ok && err == nil {
				if errs[at] == nil {
					errs[at] = errNoAnswerFor
				}
				err = &partitionError{at, errs[at]}
			}
		}
	}
	return all, err
}

// errorOf returns the error of a code of Kafka, or nil.
func errorOf(code int16) error {
	if code == 0 {
		return nil
	}
	return kafka.Error(code)
}
