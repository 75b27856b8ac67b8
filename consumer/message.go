package consumer

import (
	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// FromSarama turns a record into a message, byte for byte: nil and empty keys and values stay apart, headers keep their
// order and may repeat (T-09). The bytes are shared.
func FromSarama(m *sarama.ConsumerMessage) *idem.Message {
	msg := &idem.Message{
		Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value, Time: m.Timestamp,
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

// toSarama turns a message into a record to be produced.
func toSarama(m *idem.Message) *sarama.ProducerMessage {
	msg := &sarama.ProducerMessage{Topic: m.Topic, Timestamp: m.Time}
	if m.Key != nil {
		msg.Key = sarama.ByteEncoder(m.Key)
	}
	if m.Value != nil {
		msg.Value = sarama.ByteEncoder(m.Value)
	}
	for _, h := range m.Headers {
		msg.Headers = append(msg.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return msg
}
