// Package kafkalog reads parts of topics, from one offset to another, and knows when it is through. A consumer of sarama does
// not: where a log ends with the mark of a transaction, or with records that were compacted away, it waits for a record that
// never comes. Here each answer of the broker says how far it went.
//
// All functions may be called concurrently with one client, which they do not close. A broker answers a connection in order, and
// may take a quarter of a second to answer a fetch; a connection that failed is closed, and opened again by whoever needs it
// next. So a consumer should not have to share its client with them.
package kafkalog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// Span is a part of a partition: the offsets from Begin on, and before End. The zero value is empty.
type Span struct {
	Topic      string
	Partition  int32
	Begin, End int64
}

// Spans returns what there is in the partitions of the topics now, in the order of topics and partitions. It asks for the
// partitions anew, since a client that lives long does not hear of topics and partitions that are created later. For a topic that
// does not exist the error matches [sarama.ErrUnknownTopicOrPartition].
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

// partitionsNow returns what the brokers say, or what the client knows if they cannot say it now.
func partitionsNow(client sarama.Client, topic string) ([]int32, error) {
	if err := client.RefreshMetadata(topic); errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil, err
	}
	return client.Partitions(topic)
}

// Bounds returns the first offset of a partition and the one that the next record will have.
func Bounds(client sarama.Client, topic string, id int32) (begin, end int64, err error) {
	if begin, err = client.GetOffset(topic, id, sarama.OffsetOldest); err != nil {
		return 0, 0, fmt.Errorf("first offset of %s/%d: %w", topic, id, err)
	}
	if end, err = client.GetOffset(topic, id, sarama.OffsetNewest); err != nil {
		return 0, 0, fmt.Errorf("last offset of %s/%d: %w", topic, id, err)
	}
	return begin, end, nil
}

// Topics returns the names of all topics that there are now and that the client may see, sorted. It asks for them anew, as
// [Spans] does. The client must know all topics, as sarama's do unless Metadata.Full is switched off.
func Topics(client sarama.Client) ([]string, error) {
	// A partition without leader is no reason not to know the names.
	if err := client.RefreshMetadata(); err != nil && !errors.Is(err, sarama.ErrLeaderNotAvailable) {
		return nil, fmt.Errorf("topics: %w", err)
	}
	topics, err := client.Topics()
	if err != nil {
		return nil, fmt.Errorf("topics: %w", err)
	}
	slices.Sort(topics)
	return topics, nil
}

// Exists reports whether there is a topic of this name now. A client that does not know it asks again.
func Exists(client sarama.Client, topic string) (bool, error) {
	_, err := client.Partitions(topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return false, nil
	}
	return err == nil, err
}
