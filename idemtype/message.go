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
	Topic     string
	Partition int32
	// Offset is negative if the place of the message in the topic is not known, as with a broker
	// that has no offsets. Such a message is never taken for a record that came before, and moves no
	// progress.
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

// Placed reports whether the place of m in its topic is known.
func (m *Message) Placed() bool { return m.Topic != "" && m.Offset >= 0 }

// Origin returns the place and the time of m, as a store records them. Without a known place,
// partition and offset are zero.
func (m *Message) Origin() dedup.Origin {
	o := dedup.Origin{Topic: m.Topic, Time: m.Time}
	if m.Offset >= 0 {
		o.Partition, o.Offset = m.Partition, m.Offset
	}
	return o
}

// SameRecord reports whether m is the record of o. A message without a known place is no record.
func (m *Message) SameRecord(o dedup.Origin) bool { return m.Placed() && m.Origin().Same(o) }

// Producer publishes messages, such as dead letters. Produce returns nil only if all messages are
// durable (acks=all).
//
// The error matches [ErrTooLarge] if the broker refuses a message because of its size, and
// [ErrRefused] if the broker refuses a message for another permanent reason. Each message names its
// topic; Partition and Offset are ignored. Produce must be safe for concurrent use.
type Producer interface {
	Produce(ctx context.Context, msgs ...*Message) error
}
