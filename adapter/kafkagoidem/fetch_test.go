package kafkagoidem

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/require"
)

// TestRead_LogAppendTime_Rule8: kafka-go drops the time at which a broker appended a record. The
// message has no time then, rather than one of the producer.
func TestRead_LogAppendTime_Rule8(t *testing.T) {
	produced := time.UnixMilli(1_700_000_000_000)
	batch := func(attributes protocol.Attributes, offset int64) protocol.RecordReader {
		return &protocol.RecordBatch{
			Attributes: attributes, BaseOffset: offset,
			Records: protocol.NewRecordReader(protocol.Record{
				Offset: offset, Time: produced, Value: protocol.NewBytes([]byte("{}")),
			}),
		}
	}
	got, err := read(partition{Topic: "orders"}, 0, fetch.ResponsePartition{
		RecordSet: protocol.RecordSet{Records: &protocol.RecordStream{Records: []protocol.RecordReader{
			batch(0, 0), batch(1<<3, 1), batch(protocol.Transactional|1<<3, 2), batch(protocol.Gzip, 3),
		}}},
	})
	require.NoError(t, err)
	var times []time.Time
	for _, m := range got.messages {
		times = append(times, m.Time)
	}
	require.Equal(t, []time.Time{produced, {}, {}, produced}, times)
}
