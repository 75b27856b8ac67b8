package runner

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// OffsetError is the error of one partition. Other partitions may have an answer.
type OffsetError struct {
	TopicPartition
	Err error
}

// Error names the partition.
func (e *OffsetError) Error() string { return fmt.Sprintf("offset of %s: %s", e.TopicPartition, e.Err) }

// Unwrap returns the error of the client.
func (e *OffsetError) Unwrap() error { return e.Err }

// ErrNoAnswer means that the answer of a broker lacks the requested topic or partition.
var ErrNoAnswer = errors.New("the answer lacks the topic")

// MissingOffset returns an [*OffsetError] for the first partition without an offset in found, in
// the order of the topics' names. The result is nil if there is no such partition. errs has the
// errors of partitions. For a partition without one the error is [ErrNoAnswer].
func MissingOffset(
	partitions map[string][]int32, found map[TopicPartition]int64, errs map[TopicPartition]error,
) error {
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		for _, id := range partitions[topic] {
			at := TopicPartition{topic, id}
			if _, ok := found[at]; ok {
				continue
			}
			if errs[at] == nil {
				return &OffsetError{at, ErrNoAnswer}
			}
			return &OffsetError{at, errs[at]}
		}
	}
	return nil
}

// Answered returns the offsets of the partitions that have an answer, as [Offsets].Ends does: an
// [*OffsetError] leaves out partitions. Another error is returned.
func Answered(found map[TopicPartition]int64, err error) (map[TopicPartition]int64, error) {
	var one *OffsetError
	if errors.As(err, &one) {
		err = nil
	}
	return found, err
}

// PartitionsOf returns the numbers of the partitions of topics, as [Offsets].Partitions does.
// denied is the client's error for topics that must not be read, unknown that for topics that do
// not exist.
func PartitionsOf(topics []TopicInfo, denied, unknown error) (map[string][]int32, error) {
	all := make(map[string][]int32, len(topics))
	for _, t := range topics {
		switch {
		case t.Err != nil:
			return nil, fmt.Errorf("partitions of %s: %w", t.Name, t.Err)
		case t.Denied:
			return nil, fmt.Errorf("partitions of %s: %w", t.Name, denied)
		case !t.Exists:
			return nil, fmt.Errorf("partitions of %s: %w", t.Name, unknown)
		}
		all[t.Name] = t.Partitions
	}
	return all, nil
}
