package kgoidem

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
)

// FromRecord turns a record into a message, byte for byte. Nil and empty keys and values stay
// distinct, and headers keep the order and may repeat. The message shares the record's bytes.
func FromRecord(r *kgo.Record) *idem.Message {
	m := new(idem.Message)
	fill(m, r, make([]idem.Header, 0, len(r.Headers)))
	return m
}

// ToRecord turns a message into a record to publish. The partitioner chooses the partition. Without
// a time the record gets the time of publishing.
func ToRecord(m *idem.Message) *kgo.Record {
	r := &kgo.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, Timestamp: m.Time}
	if len(m.Headers) > 0 {
		r.Headers = make([]kgo.RecordHeader, len(m.Headers))
		for i, h := range m.Headers {
			r.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
		}
	}
	return r
}

// fill sets all fields of m. headers has room for the headers of r.
func fill(m *idem.Message, r *kgo.Record, headers []idem.Header) {
	*m = idem.Message{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Key: r.Key, Value: r.Value, Time: r.Timestamp,
	}
	for _, h := range r.Headers {
		headers = append(headers, idem.Header{Key: h.Key, Value: h.Value})
	}
	if len(r.Headers) > 0 {
		m.Headers = headers
	}
}

// converter is FromRecord with fewer allocations, for the messages of a partition. Small messages
// are allocated many at a time. It is not safe for concurrent use.
type converter struct {
	messages []idem.Message
	headers  []idem.Header
}

// messagesAtOnce is the number of messages in one allocation. A message that is kept for long keeps
// the others of its allocation in memory, with their bytes. So a message above smallMessage has an
// allocation of its own. maxHeadersAtOnce bounds the headers per message in one allocation.
const (
	messagesAtOnce   = 64
	smallMessage     = 4 << 10
	maxHeadersAtOnce = 8
)

func (c *converter) message(r *kgo.Record) *idem.Message {
	if len(r.Value) > smallMessage {
		return FromRecord(r)
	}
	if len(c.messages) == 0 {
		c.messages = make([]idem.Message, messagesAtOnce)
	}
	n := len(r.Headers)
	if len(c.headers) < n {
		c.headers = make([]idem.Header, max(n, messagesAtOnce*min(n, maxHeadersAtOnce)))
	}
	m, headers := &c.messages[0], c.headers[:0:n]
	c.messages, c.headers = c.messages[1:], c.headers[n:]
	fill(m, r, headers)
	return m
}
