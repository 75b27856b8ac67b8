package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/idem-go/idem/dedup"
)

// TopicPartition names a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns the topic and the number of the partition, such as "orders/7".
func (p TopicPartition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Partition) }

// sortedPartitions returns the keys of a map by topic and number.
func sortedPartitions[V any](of map[TopicPartition]V) []TopicPartition {
	return slices.SortedFunc(maps.Keys(of), func(a, b TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// byTopic returns the numbers of partitions by topic.
func byTopic(partitions []TopicPartition) map[string][]int32 {
	all := make(map[string][]int32)
	for _, p := range partitions {
		all[p.Topic] = append(all[p.Topic], p.Partition)
	}
	return all
}

// Offsets reads offsets for a runner. An implementation wraps a Kafka client. Errors are those of
// the client, so that [Classify] knows them, and name the partition. Safe for concurrent use.
type Offsets interface {
	// Partitions returns the numbers of the partitions of topics.
	Partitions(ctx context.Context, topics []string) (map[string][]int32, error)
	// Committed returns the committed offsets of the group. A partition without one is left out. A
	// partition without an answer is an error.
	Committed(
		ctx context.Context, group string, partitions map[string][]int32,
	) (map[TopicPartition]int64, error)
	// Oldest returns the first offset in the log of each partition. A partition without an answer
	// is an [*OffsetError], and the offsets of the others are returned beside it.
	Oldest(ctx context.Context, partitions map[string][]int32) (map[TopicPartition]int64, error)
	// Newest returns the next offset to be written of each partition: the high-water mark, also
	// behind open transactions. A partition without an answer is an [*OffsetError], and the offsets
	// of the others are returned beside it.
	Newest(ctx context.Context, partitions map[string][]int32) (map[TopicPartition]int64, error)
	// Ends returns the end of the visible log of each partition, as the leader knows it: with
	// committed reads the last stable offset. A partition with a leader that does not answer is
	// left out.
	Ends(ctx context.Context, partitions map[string][]int32) (map[TopicPartition]int64, error)
}

// RetryBeginnings returns the partitions of the group's retry topics without a committed offset,
// with the oldest offsets. A runner that begins at the newest record of the sources commits these
// offsets before a session. The group itself wrote the copies, and may skip no copy.
//
// committed has the offsets of the other partitions. A client that has read the offsets of its
// partitions earlier must begin there: another member may have committed the oldest offset since.
//
// Partitions of other members are included, because partitions that a cooperative rebalance adds to
// a session are not known at the start.
func RetryBeginnings(
	ctx context.Context, offsets Offsets, group string, topics []string,
) (oldest, committed map[TopicPartition]int64, err error) {
	retries := slices.DeleteFunc(slices.Clone(topics), func(topic string) bool {
		return !IsRetry(topic, group)
	})
	if len(retries) == 0 {
		return nil, nil, nil
	}
	partitions, err := offsets.Partitions(ctx, retries)
	if err != nil {
		return nil, nil, err
	}
	committed, err = offsets.Committed(ctx, group, partitions)
	if err != nil {
		return nil, nil, fmt.Errorf("offsets of retry topics: %w", err)
	}
	fresh := make(map[string][]int32)
	for topic, ids := range partitions {
		for _, id := range ids {
			if _, ok := committed[TopicPartition{topic, id}]; !ok {
				fresh[topic] = append(fresh[topic], id)
			}
		}
	}
	if len(fresh) == 0 {
		return nil, committed, nil
	}
	oldest, err = offsets.Oldest(ctx, fresh)
	return oldest, committed, err
}

// RegisterGroup compares scope and identity functions with those on record, before the group is
// joined, and waits for brokers and stores that are down. It needs the defaults of cfg.
//
// Only source topics are registered. Retry topics are the group's own, so no other scope can have
// handled events there. Offsets on retry topics do not mean that a renamed group has consumed
// before.
func RegisterGroup(
	ctx context.Context, cfg Config, stores *StoreStart, retry *Retrier, offsets Offsets,
) error {
	if !stores.Registers() {
		return nil
	}
	none, err := noOffsets(ctx, cfg, retry, offsets)
	if err != nil {
		return err
	}
	return stores.Register(ctx, dedup.Registration{
		Group: cfg.Group, Topics: cfg.Topics, NoOffsets: none,
		AcceptNewIdentity: cfg.AcceptNewIdentity, NewScope: cfg.NewScope,
	})
}

// noOffsets reports whether the topics have no committed offset of the group. Without the right to
// know, noOffsets logs a warning and returns false (rule 46).
func noOffsets(
	ctx context.Context, cfg Config, retry *Retrier, offsets Offsets,
) (bool, error) {
	var back Backoff
	for {
		none, err := tryNoOffsets(ctx, cfg, offsets)
		if err == nil {
			retry.Over()
			return none, nil
		}
		class := retry.classify(err)
		if class == UnknownGroup {
			return true, nil
		}
		if class == DeniedGroup || class == DeniedTopic {
			cfg.Logger.Warn("not known whether the group has committed offsets, "+
				"so a renamed group is not noticed: grant Describe on the group and on its topics",
				"group", cfg.Group, "error", cfg.Text(err))
			return false, nil
		}
		if err := retry.Wait(ctx, &back, err); err != nil {
			return false, err
		}
	}
}

func tryNoOffsets(ctx context.Context, cfg Config, offsets Offsets) (bool, error) {
	partitions, err := offsets.Partitions(ctx, cfg.Topics)
	if err != nil {
		return false, err
	}
	committed, err := offsets.Committed(ctx, cfg.Group, partitions)
	return len(committed) == 0, err
}
