package kafkagoidem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// TestGrowth_K29: partitions that are added at the begin of a membership, before the first look for
// them, are consumed. So are later ones.
func TestGrowth_K29(t *testing.T) {
	brokers, topic, cfg := onFake(t, 1)
	admin := kadm.NewClient(clientOf(t, brokers))
	add := func() {
		answers, err := admin.CreatePartitions(t.Context(), 1, topic)
		require.NoError(t, err)
		require.NoError(t, answers.Error())
	}
	var got tally
	m := start(t, cfg, routed(got.handle), func(r *Runner) { r.growthEvery = 3 * time.Second })
	require.Eventually(t, func() bool { return m.claims() == 1 }, soon, poll)
	add()
	produceEvents(t, brokers, topic, 0, 20)
	require.Eventually(t, func() bool { return got.events() == 20 && m.claims() == 2 }, soon, poll)
	add()
	produceEvents(t, brokers, topic, 20, 40)
	require.Eventually(t, func() bool { return got.events() == 40 && m.claims() == 3 }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 40, got.total())
}
