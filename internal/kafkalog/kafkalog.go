// Package kafkalog reads parts of topics, from one offset to another, and detects the end of the
// part. A sarama consumer does not: a log that ends with a transaction marker, or with compacted
// records, makes it wait for a record that never comes. This package uses the position that each
// answer of the broker reports.
//
// All functions are safe for concurrent use with one client, and do not close it. A broker answers
// a connection in order, and a fetch may take 250 ms. A connection that failed is closed, and
// opened again at its next use. Use a client that no consumer shares.
package kafkalog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// Span is a part of a partition: the offsets from Begin, and before End. The zero value is empty.
type Span struct {
	Topic      string
	Partition  int32
	Begin, End int64
}

// Spans returns the current contents of the partitions of the topics, in the order of topics and
// partitions. It refreshes the metadata, so that partitions created since are included. For a topic
// that does not exist the error matches [sarama.ErrUnknownTopicOrPartition].
func Spans(client sarama.Client, topics ...string) ([]Span, error) {
	var spans []Span
	for _, topic := range topics {
		partitions, err := partitionsNow(client, topic)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", topic, err)
		}
		for _, id := range slices.Sorted(slices.Values(partitions)) {
			s := Span{Topic: topic, Partition: id}
			if s.Begin, s.End, err = Bounds(client, topic, id); err != nil {
				return nil, err
			}
			spans = append(spans, s)
		}
	}
	return spans, nil
}

// partitionsNow asks the brokers for the partitions, and falls back to the client's metadata if
// they do not answer.
func partitionsNow(client sarama.Client, topic string) ([]int32, error) {
	if err := client.RefreshMetadata(topic); errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil, err
	}
	return client.Partitions(topic)
}

// Bounds returns the first offset of a partition and the offset that the next record will have.
func Bounds(client sarama.Client, topic string, id int32) (begin, end int64, err error) {
	if begin, err = client.GetOffset(topic, id, sarama.OffsetOldest); err != nil {
		return 0, 0, fmt.Errorf("first offset of %s/%d: %w", topic, id, err)
	}
	if end, err = client.GetOffset(topic, id, sarama.OffsetNewest); err != nil {
		return 0, 0, fmt.Errorf("last offset of %s/%d: %w", topic, id, err)
	}
	return begin, end, nil
}

// Stable returns the last stable offset of a partition: all transactions before it have ended.
// Without open transactions it is the offset that the next record will have.
func Stable(client sarama.Client, topic string, id int32) (int64, error) {
	end, err := stable(client, topic, id)
	if err != nil {
		return 0, fmt.Errorf("last stable offset of %s/%d: %w", topic, id, err)
	}
	return end, nil
}

func stable(client sarama.Client, topic string, id int32) (int64, error) {
	leader, err := client.Leader(topic, id)
	if err != nil {
		return 0, err
	}
	r := sarama.NewOffsetRequest(client.Config().Version)
	r.IsolationLevel = sarama.ReadCommitted
	r.AddBlock(topic, id, sarama.OffsetNewest, 1)
	answer, err := leader.GetAvailableOffsets(r)
	if err != nil {
		_ = leader.Close() // reopened by the next Leader call
		return 0, err
	}
	block := answer.GetBlock(topic, id)
	switch {
	case block == nil:
		return 0, sarama.ErrIncompleteResponse
	case !errors.Is(block.Err, sarama.ErrNoError):
		return 0, block.Err
	}
	return block.Offset, nil
}

// Topics returns the names of all topics that the client may see, sorted, after a refresh of the
// metadata. The client must know all topics, which is sarama's default, Metadata.Full.
func Topics(client sarama.Client) ([]string, error) {
	// The names are known even if a partition has no leader.
	if err := client.RefreshMetadata(); err != nil &&
		!errors.Is(err, sarama.ErrLeaderNotAvailable) {
		return nil, fmt.Errorf("topics: %w", err)
	}
	topics, err := client.Topics()
	if err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	slices.Sort(topics)
	return topics, nil
}

// Exists reports whether the topic exists now. The client asks the brokers for a topic that it does
// not know.
func Exists(client sarama.Client, topic string) (bool, error) {
	_, err := client.Partitions(topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return false, nil
	}
	return err == nil, err
}
