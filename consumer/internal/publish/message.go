package publish

import (
	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// ToSarama turns a message into a record to be produced.
func ToSarama(m *idem.Message) *sarama.ProducerMessage {
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

// sizeOf returns the size of a message as sarama measures it.
func sizeOf(m *idem.Message) int {
	const recordBatchV2 = 2
	return ToSarama(m).ByteSize(recordBatchV2)
}

// perMessage is roughly the memory, in bytes, that sarama needs beside the message.
const perMessage = 512

// weightOf returns how many bytes of the budget a message takes.
func weightOf(m *idem.Message) int { return sizeOf(m) + perMessage }
