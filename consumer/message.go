package consumer

import (
	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// FromSarama turns a record into a message, byte for byte. Nil and empty keys and values stay
// distinct, and headers keep the order and may repeat. The message shares the record's bytes.
func FromSarama(m *sarama.ConsumerMessage) *idem.Message {
	msg := new(idem.Message)
	fill(msg, m, make([]idem.Header, 0, len(m.Headers)), nil)
	return msg
}

// fill sets all fields of msg. The slice headers has room for the headers of m. The map names has
// the known names of headers, and may be nil. A new name is added while there is room.
func fill(
	msg *idem.Message, m *sarama.ConsumerMessage, headers []idem.Header, names map[string]string,
) {
	*msg = idem.Message{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset,
		Key: m.Key, Value: m.Value, Time: m.Timestamp,
	}
	for _, h := range m.Headers {
		if h == nil {
			continue
		}
		name, known := names[string(h.Key)]
		if !known {
			name = string(h.Key)
			if names != nil && len(names) < maxNames && len(name) <= maxName {
				names[name] = name
			}
		}
		headers = append(headers, idem.Header{Key: name, Value: h.Value})
	}
	if len(m.Headers) > 0 {
		msg.Headers = headers
	}
}

// maxNames and maxName bound the memory for names of headers.
const (
	maxNames = 64
	maxName  = 64
)

// converter is FromSarama with fewer allocations, for the messages of a partition. Small messages
// are allocated many at a time, and a name of a header once. It is not safe for concurrent use.
type converter struct {
	messages []idem.Message
	headers  []idem.Header
	names    map[string]string
}

// messagesAtOnce is the number of messages in one allocation. A message that is kept for long keeps
// the others of its allocation in memory, with their bytes. So a message above smallMessage has an
// allocation of its own.
const (
	messagesAtOnce = 64
	smallMessage   = 4 << 10
)

func (c *converter) message(m *sarama.ConsumerMessage) *idem.Message {
	if len(m.Value) > smallMessage {
		return FromSarama(m)
	}
	if len(c.messages) == 0 {
		c.messages = make([]idem.Message, messagesAtOnce)
	}
	if c.names == nil {
		c.names = make(map[string]string)
	}
	n := len(m.Headers)
	if len(c.headers) < n {
		c.headers = make([]idem.Header, max(n, messagesAtOnce*min(n, maxHeadersAtOnce)))
	}
	msg, headers := &c.messages[0], c.headers[:0:n]
	c.messages, c.headers = c.messages[1:], c.headers[n:]
	fill(msg, m, headers, c.names)
	return msg
}

// maxHeadersAtOnce bounds the headers per message in one allocation.
const maxHeadersAtOnce = 8
