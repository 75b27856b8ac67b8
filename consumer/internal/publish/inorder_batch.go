package publish

import (
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

// orderedBatch is messages of a call for one partition, which a broker appends together.
type orderedBatch struct {
	at       partition
	indexes  []int // of the messages in the call, in their order
	attempts int
	unknown  bool        // an attempt may have been appended
	waits    atomic.Bool // a broker has the request, and has not answered
}

// split returns both halves. The first one goes first.
func (b *orderedBatch) split() (first, second *orderedBatch) {
	half := len(b.indexes) / 2
	return &orderedBatch{at: b.at, indexes: b.indexes[:half]},
		&orderedBatch{at: b.at, indexes: b.indexes[half:]}
}

// batchesOf returns indexes as batches of at most maxTogether bytes, or of one message.
func batchesOf(at partition, indexes []int, sizes []int) (list []*orderedBatch) {
	for part := range partsOf(indexes, func(i int) int { return sizes[i] }) {
		list = append(list, &orderedBatch{at: at, indexes: part})
	}
	return list
}

// record returns the batch in Kafka's format, version 2. sequence is the number of its first record
// (KIP-98).
func (b *orderedBatch) record(
	conf *sarama.Config, id *producerID, sequence int32, msgs []*sarama.ProducerMessage,
) *sarama.RecordBatch {
	now := time.Now()
	timeOf := func(m *sarama.ProducerMessage) time.Time {
		if m.Timestamp.IsZero() {
			return now.Truncate(time.Millisecond)
		}
		return m.Timestamp.Truncate(time.Millisecond)
	}
	first := timeOf(msgs[b.indexes[0]])
	batch := &sarama.RecordBatch{
		Version: 2, Codec: conf.Producer.Compression,
		CompressionLevel: conf.Producer.CompressionLevel,
		FirstTimestamp:   first, MaxTimestamp: first,
		ProducerID: id.id, ProducerEpoch: id.epoch, FirstSequence: sequence,
		LastOffsetDelta: int32(len(b.indexes) - 1),
		Records:         make([]*sarama.Record, len(b.indexes)),
	}
	records := make([]sarama.Record, len(b.indexes))
	for n, i := range b.indexes {
		m, r := msgs[i], &records[n]
		at := timeOf(m)
		if at.After(batch.MaxTimestamp) {
			batch.MaxTimestamp = at
		}
		r.TimestampDelta, r.OffsetDelta = at.Sub(first), int64(n)
		r.Key, r.Value = bytesOf(m.Key), bytesOf(m.Value)
		r.Headers = make([]*sarama.RecordHeader, len(m.Headers))
		for h := range m.Headers {
			r.Headers[h] = &m.Headers[h]
		}
		batch.Records[n] = r
	}
	return batch
}

// bytesOf returns the bytes of an encoder that ToSarama has made.
func bytesOf(e sarama.Encoder) []byte {
	if e == nil {
		return nil
	}
	return e.(sarama.ByteEncoder)
}

// newRequest returns an empty request. Its version follows from the version of the brokers that the
// configuration names.
func newRequest(conf *sarama.Config) *sarama.ProduceRequest {
	r := &sarama.ProduceRequest{
		RequiredAcks: sarama.WaitForAll,
		Timeout:      int32(conf.Producer.Timeout / time.Millisecond), Version: 3,
	}
	for _, v := range []struct {
		from    sarama.KafkaVersion
		version int16
	}{
		{sarama.V1_0_0_0, 5}, {sarama.V2_0_0_0, 6}, {sarama.V2_1_0_0, 7}, {sarama.V2_4_0_0, 8},
		{sarama.V2_8_0_0, 9}, {sarama.V3_7_0_0, 10},
	} {
		if conf.Version.IsAtLeast(v.from) {
			r.Version = v.version
		}
	}
	return r
}
