package consumer

import (
	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// FromSarama turns a record into a message, byte for byte. Nil and empty keys and values stay
// distinct, and headers keep the order and may repeat. The message shares the record's bytes.
func FromSarama(m *sarama.ConsumerMessage) *idem.Message {
	msg := &idem.Message{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset,
		Key: m.Key, Value: m.Value, Time: m.Timestamp,
	}
	if len(m.Headers) > 0 {
		msg.Headers = make([]idem.Header, 0, len(m.Headers))
		for _, h := range m.Headers {
			if h != nil {
				msg.Headers = append(msg.Headers, idem.Header{Key: string(h.Key), Value: h.Value})
			}
		}
	}
	return msg
}
