package kafkagoidem

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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

// ask asks the leaders beside each other. A partition without an answer is left out, and the error
// is a [*runner.OffsetError].
//
// Each leader has a request of its own. In a request for several, kafka-go connects to one leader
// after the other, so a leader that is away would hold up the others.
func (o offsets) ask(
	ctx context.Context, partitions map[string][]int32, when int64, isolation int8,
) (map[partition]int64, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, errs := make(map[partition]int64), make(map[partition]error)
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, led := range o.byLeader(ctx, partitions, errs) {
		asking.Go(func() {
			found, refused, err := o.askLeader(ctx, led, when, isolation)
			mu.Lock()
			defer mu.Unlock()
			for _, at := range led {
				errs[at] = err
			}
			maps.Copy(errs, refused)
			maps.Copy(all, found)
		})
	}
	asking.Wait()
	return all, runner.MissingOffset(partitions, all, errs)
}

// byLeader groups partitions by their leaders, as kafka-go has last learned them. errs gets an
// error for each partition without a leader. Partitions that kafka-go does not know are one group.
func (o offsets) byLeader(
	ctx context.Context, partitions map[string][]int32, errs map[partition]error,
) map[int][]partition {
	leaders := make(map[partition]int)
	known, err := o.cl.Metadata(ctx, &kafka.MetadataRequest{
		Addr: o.addr, Topics: slices.Collect(maps.Keys(partitions)),
	})
	if err == nil {
		for _, t := range known.Topics {
			for _, p := range t.Partitions {
				at := partition{Topic: t.Name, Partition: int32(p.ID)} //nolint:gosec // from an int32
				leaders[at] = p.Leader.ID
				if p.Leader.Host == "" {
					errs[at] = cmp.Or(p.Error, error(kafka.LeaderNotAvailable))
				}
			}
		}
	}
	const unknown = -1
	groups := make(map[int][]partition)
	for topic, ids := range partitions {
		for _, id := range ids {
			at := partition{Topic: topic, Partition: id}
			leader, ok := leaders[at]
			switch {
			case errs[at] != nil:
				continue
			case !ok:
				leader = unknown
			}
			groups[leader] = append(groups[leader], at)
		}
	}
	return groups
}

// askLeader asks one leader for its partitions.
func (o offsets) askLeader(
	ctx context.Context, led []partition, when int64, isolation int8,
) (found map[partition]int64, refused map[partition]error, err error) {
	topics := make(map[string][]listoffsets.RequestPartition)
	for _, at := range led {
		topics[at.Topic] = append(topics[at.Topic], listoffsets.RequestPartition{
			Partition: at.Partition, CurrentLeaderEpoch: -1, Timestamp: when,
		})
	}
	req := &listoffsets.Request{ReplicaID: -1, IsolationLevel: isolation}
	for topic, list := range topics {
		req.Topics = append(req.Topics, listoffsets.RequestTopic{Topic: topic, Partitions: list})
	}
	answer, err := o.cl.Transport.RoundTrip(ctx, o.addr, req)
	if err != nil {
		return nil, nil, fmt.Errorf("offsets of partitions: %w", err)
	}
	all, ok := answer.(*listoffsets.Response)
	if !ok {
		return nil, nil, runner.ErrNoAnswer
	}
	found, refused = make(map[partition]int64), make(map[partition]error)
	for _, t := range all.Topics {
		for _, p := range t.Partitions {
			at := partition{Topic: t.Topic, Partition: p.Partition}
			if refused[at] = errorOf(p.ErrorCode); refused[at] == nil {
				found[at] = p.Offset
			}
		}
	}
	return found, refused, nil
}

// errorOf returns the error of a code of Kafka, or nil.
func errorOf(code int16) error {
	if code == 0 {
		return nil
	}
	return kafka.Error(code)
}
