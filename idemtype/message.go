package idemtype

import (
	"context"
	"log/slog"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Message is one delivery of a record, from any Kafka client. A nil Value is a tombstone and
// differs from an empty one; the same holds for Key.
//
// Do not change a Message, or the data behind its slices, during a call of a Processor of package
// idem.
type Message struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []Header
	Time       time.Time

	// Received is when the consumer received the message. A processor sets a zero Received of a
	// copy in a retry topic.
	Received time.Time
}

// Header is one header of a record. Several headers may have the same key.
type Header struct {
	Key   string
	Value []byte
}

// LogValue implements [slog.LogValuer] with topic, partition and offset. Key, value and headers are
// not logged.
func (m *Message) LogValue() slog.Value {
	if m == nil {
		return slog.Value{}
	}
	return slog.GroupValue(
		slog.String("topic", m.Topic),
		slog.Int("partition", int(m.Partition)),
		slog.Int64("offset", m.Offset),
	)
}

// Origin returns the place and the time of m, as a store records them.
func (m *Message) Origin() dedup.Origin {
	return dedup.Origin{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Time}
}

// Producer publishes messages, such as dead letters. Produce returns nil only if all messages are
// durable (acks=all).
//
// The error matches [ErrTooLarge] if the broker refuses a message because of its size, and
// [ErrRefused] if the broker refuses a message for another permanent reason. Each message names its
// topic; Partition and Offset are ignored. Produce must be safe for concurrent use.
type Producer interface {
	Produce(ctx context.Context, msgs ...*Message) error
}
