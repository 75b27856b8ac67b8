package kgoidem

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestBomb_G01: a batch that decompresses to more than the limit stops its partition. The others go
// on without a rebalance, and the log names the remedy.
func TestBomb_G01(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onFake(t, 2)
	const limit = 64 << 10
	cfg.Options = append(cfg.Options, kgo.MaxDecompressBatchBytes(limit))
	large := record(topic, 0)
	large.Partition, large.Value = 1, []byte("{}"+strings.Repeat(" ", 4*limit))
	writer := clientOf(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	require.NoError(t, writer.ProduceSync(t.Context(), large).FirstErr())
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool {
		return strings.Contains(m.String(), "raise kgo.MaxDecompressBatchBytes")
	}, soon, poll)
	membership := m.current.Load()
	for i := 1; i < 4; i++ {
		require.NoError(t, writer.ProduceSync(t.Context(), record(topic, i)).FirstErr())
		require.Eventually(t, func() bool { return got.events() == i }, soon, poll)
	}
	require.Same(t, membership, m.current.Load())
	require.NoError(t, m.end())
	require.Equal(t, 3, got.total())
	sum, partitions := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, 3, sum)
	require.Equal(t, 1, partitions)
}
