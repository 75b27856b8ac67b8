// Package rawkafka writes records that the clients of Go cannot write. Only tests import it.
package rawkafka

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// ProduceAt writes a record with a time in milliseconds since 1970 to partition 0 of a topic. The
// clients of Go count in nanoseconds, so the times of their own records end in the year 2262. The
// cluster must have one broker.
func ProduceAt(
	t testing.TB, brokers []string, topic string, millis int64, value string,
	headers ...kmsg.Header,
) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.MaxVersions(kversion.V3_0_0()))
	require.NoError(t, err)
	defer client.Close()
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = batch(millis, value, headers)
	of := kmsg.NewProduceRequestTopic()
	of.Topic, of.Partitions = topic, []kmsg.ProduceRequestTopicPartition{part}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 10_000, []kmsg.ProduceRequestTopic{of}
	answer, err := client.SeedBrokers()[0].Request(t.Context(), req)
	require.NoError(t, err)
	code := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	require.NoError(t, kerr.ErrorForCode(code))
}

// batch returns a batch of one record in the form of Kafka 0.11.
func batch(millis int64, value string, headers []kmsg.Header) []byte {
	r := kmsg.Record{Value: []byte(value), Headers: headers}
	r.Length = int32(len(r.AppendTo(nil)) - 1) // without itself, which is one byte for zero
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, FirstTimestamp: millis, MaxTimestamp: millis,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: r.AppendTo(nil),
	}
	const length, checksum, checked = 8, 17, 21 // places of the fields
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[length:], uint32(len(raw)-length-4))
	sum := crc32.Checksum(raw[checked:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(raw[checksum:], sum)
	return raw
}
