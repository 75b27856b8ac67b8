package groups

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// Log is the range of offsets in a partition.
type Log struct {
	// Topic and Partition identify the partition.
	Topic     string
	Partition int32
	// Begin is the first offset, and End the offset that the next record will have.
	Begin, End int64
	// Err is set if they are not known.
	Err error
}

// Logs returns the logs of all partitions of topics that the client knows, in the order of names
// and numbers. It sends two requests to every broker: for the beginnings and for the ends of all
// partitions that the broker leads.
func Logs(client sarama.Client, topics ...string) ([]Log, error) {
	var logs []Log
	led := make(map[string][]int32)
	for _, topic := range topics {
		all, err := client.Partitions(topic)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", topic, err)
		}
		for _, id := range all {
			l := Log{Topic: topic, Partition: id}
			// Skip partitions without a leader: the client would search the leader of each, one
			// after the other.
			if client.PartitionNotReadable(topic, id) {
				l.Err = fmt.Errorf("%s/%d: %w", topic, id, sarama.ErrLeaderNotAvailable)
			} else {
				led[topic] = append(led[topic], id)
			}
			logs = append(logs, l)
		}
	}
	slices.SortFunc(logs, func(a, b Log) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	if len(led) == 0 {
		return logs, nil
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	begins, err := listOffsets(admin, led, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	ends, err := listOffsets(admin, led, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	for i := range logs {
		logs[i].fill(begins, ends)
	}
	return logs, nil
}

type offsets map[string]map[int32]*sarama.OffsetResult

// listOffsets asks for one end of partitions. If a broker does not answer, its partitions get the
// error.
func listOffsets(
	admin sarama.ClusterAdmin, partitions map[string][]int32, end int64,
) (offsets, error) {
	want := make(map[string]map[int32]int64, len(partitions))
	for topic, ids := range partitions {
		want[topic] = make(map[int32]int64, len(ids))
		for _, id := range ids {
			want[topic][id] = end
		}
	}
	found, err := admin.ListOffsets(want, nil)
	if err != nil && len(found) == 0 {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	for topic, ids := range partitions {
		if found[topic] == nil {
			found[topic] = make(map[int32]*sarama.OffsetResult, len(ids))
		}
		for _, id := range ids {
			if found[topic][id] == nil {
				found[topic][id] = &sarama.OffsetResult{
					Err: cmp.Or(err, sarama.ErrIncompleteResponse),
				}
			}
		}
	}
	return found, nil
}

func (l *Log) fill(begins, ends offsets) {
	begin, end := begins[l.Topic][l.Partition], ends[l.Topic][l.Partition]
	switch {
	case l.Err != nil:
	case bad(begin.Err):
		l.Err = fmt.Errorf("first offset of %s/%d: %w", l.Topic, l.Partition, begin.Err)
	case bad(end.Err):
		l.Err = fmt.Errorf("last offset of %s/%d: %w", l.Topic, l.Partition, end.Err)
	default:
		// The log may have been truncated between the two answers.
		l.Begin, l.End = begin.Offset, max(begin.Offset, end.Offset)
	}
}

func bad(err error) bool { return err != nil && !errors.Is(err, sarama.ErrNoError) }
