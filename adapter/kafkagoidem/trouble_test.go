package kafkagoidem

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/runner"
)

// TestNoLeader_Rule8: a partition without a leader keeps no other partition from learning its end.
func TestNoLeader_Rule8(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg := configFor(cluster.ListenAddrs(), "orders")
	cfg.Store = forever()
	r, err := New(cfg, routed(new(tally).handle))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.disconnect()) })
	cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Partitions: []int32{1},
		Err: kerr.NotLeaderForPartition, Count: -1,
	})
	both := map[string][]int32{"orders": {1, 0}}
	found, err := r.offsets.Newest(t.Context(), both)
	var one *runner.OffsetError
	require.ErrorAs(t, err, &one)
	require.ErrorIs(t, err, kafka.NotLeaderForPartition)
	require.Equal(t, partition{Topic: "orders", Partition: 1}, one.TopicPartition)
	require.Equal(t, map[partition]int64{{Topic: "orders"}: 0}, found)
}

// TestUnreachableLeader_Rule8: a leader that cannot be connected to keeps no partition of another
// leader from learning its end.
func TestUnreachableLeader_Rule8(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(8, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers := cluster.ListenAddrs()
	dead := cluster.LeaderFor("orders", 0)
	var reached []int32
	ids := []int32{0} // of the dead leader: asked first
	for id := range int32(8) {
		if cluster.LeaderFor("orders", id) != dead {
			reached, ids = append(reached, id), append(ids, id)
		}
	}
	require.NotEmpty(t, reached)
	cfg := configFor([]string{brokers[1-dead]}, "orders")
	cfg.Store = forever()
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == brokers[dead] {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	r, err := New(cfg, routed(new(tally).handle))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.disconnect()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	found, err := r.offsets.Newest(ctx, map[string][]int32{"orders": ids})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, found, len(reached))
	ends, err := runner.Answered(found, err)
	require.NoError(t, err)
	require.Len(t, ends, len(reached))
}

// TestRebalanceBeforeBegin_K11: a generation ends before the offsets of its partitions are known. No
// request without a topic is sent: brokers answer it without a look at the group, so it would
// neither keep the member nor find that the member was removed.
func TestRebalanceBeforeBegin_K11(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var empty atomic.Int64
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if commit, ok := req.(*kmsg.OffsetCommitRequest); ok && len(commit.Topics) == 0 {
			empty.Add(1)
		}
		return nil, nil, false
	})
	leaderless := cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Err: kerr.NotLeaderForPartition, Count: -1,
	})
	cfg := configFor(cluster.ListenAddrs(), "orders")
	cfg.Store = forever()
	produceEvents(t, cfg.Brokers, "orders", 0, 20)
	var got tally
	waits := func(m *running) func() bool {
		return func() bool { return strings.Contains(m.String(), "cannot consume") }
	}
	first := start(t, cfg, routed(got.handle))
	require.Eventually(t, waits(first), soon, poll)
	second := start(t, cfg, routed(got.handle))
	require.Eventually(t, waits(second), soon, poll)
	leaderless.Remove()
	require.Eventually(t, func() bool { return got.events() == 20 && first.claims() == 1 }, soon, poll)
	require.NoError(t, first.end())
	require.NoError(t, second.end())
	require.Zero(t, empty.Load(), "commits without a topic")
	require.Equal(t, 20, got.total())
}
