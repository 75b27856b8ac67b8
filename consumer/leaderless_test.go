package consumer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/runner"
)

// leaderless answers, while on is set, that partition 1 of orders has no leader.
func leaderless(t *testing.T, c *kfake.Cluster, on *atomic.Bool, topics map[string]int32) {
	t.Helper()
	host, text, err := net.SplitHostPort(c.ListenAddrs()[0])
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !on.Load() {
			return nil, nil, false
		}
		req := r.(*kmsg.MetadataRequest)
		var names []string
		for _, topic := range req.Topics {
			names = append(names, *topic.Topic)
		}
		if len(names) == 0 {
			for name := range topics {
				names = append(names, name)
			}
		}
		answer := req.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host, broker.Port = c.CurrentNode(), host, int32(port)
		answer.Brokers, answer.ControllerID = append(answer.Brokers, broker), broker.NodeID
		for _, name := range names {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = &name
			if topics[name] == 0 {
				topic.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			for id := range topics[name] {
				p := kmsg.NewMetadataResponseTopicPartition()
				p.Partition, p.Leader, p.LeaderEpoch = id, broker.NodeID, -1
				if name == "orders" && id == 1 {
					p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
				}
				topic.Partitions = append(topic.Partitions, p)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
}

// TestKfake_PartitionWithoutLeader_K18: a partition without a leader waits beside the others, with
// a committed offset and without one. It begins when it has a leader.
func TestKfake_PartitionWithoutLeader_K18(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start         StartPosition
		cooperative   bool
		committed     bool
		before, after int   // how many events were handled, without and with the leader
		end           int64 // of partition 1
	}{
		"committed":              {Oldest, false, true, 3, 4, 2},
		"committed, cooperative": {Oldest, true, true, 3, 4, 2},
		"committed, newest":      {Newest, false, true, 3, 4, 2},
		"new":                    {Oldest, false, false, 2, 3, 1},
		"new, newest":            {Newest, false, false, 1, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"),
				kfake.SeedTopics(1, "orders.g.dlq"), kfake.GroupMinSessionTimeout(time.Second))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			brokers := cluster.ListenAddrs()
			var away atomic.Bool
			leaderless(t, cluster, &away, map[string]int32{"orders": 2, "orders.g.dlq": 1})
			send := func(event int, partition int32) {
				r := record("orders", event)
				r.Metadata = toPartition(partition)
				produce(t, brokers, r)
			}
			cfg := Config{
				Brokers: brokers, Group: "g", Topics: []string{"orders"}, Store: forever(),
				Cooperative: c.cooperative,
				Sarama: func(sc *sarama.Config) {
					quick(sc)
					sc.Metadata.Retry.Max = 1 // and a refresh by itself once a minute
				},
			}
			committedAt := func(first, second int64) func() bool {
				return func() bool {
					at := committed(t, brokers, "g", "orders", 0, 1)
					return at[0] == first && at[1] == second
				}
			}
			var got tally
			send(0, 0)
			send(1, 1)
			if c.committed {
				m := start(t, cfg, routed(got.handle))
				require.Eventually(t, func() bool { return got.events() == 2 }, soon, poll)
				require.NoError(t, m.end())
				require.True(t, committedAt(1, 1)())
				send(2, 1)
			}
			away.Store(true)
			cfg.Start = c.start
			m := start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return claimsOf(m) == 1 }, soon, poll)
			send(3, 0)
			require.Eventually(t, func() bool { return got.events() == c.before }, soon, poll)
			away.Store(false)
			require.Eventually(t, committedAt(2, c.end), soon, poll)
			require.Equal(t, c.after, got.total())
			require.NoError(t, m.end())
		})
	}
}

// TestOnlyLeaders_K18: which failed refreshes of the metadata do not keep a member from the group.
func TestOnlyLeaders_K18(t *testing.T) {
	leader := fmt.Errorf("orders: %w", sarama.ErrLeaderNotAvailable)
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none":              {nil, false},
		"one leader":        {leader, true},
		"leaders":           {errors.Join(leader, leader), true},
		"another error":     {sarama.ErrOutOfBrokers, false},
		"leader and topic":  {errors.Join(leader, fmt.Errorf("stock: %w", sarama.ErrUnknownTopicOrPartition)), false},
		"leader and rights": {errors.Join(sarama.ErrTopicAuthorizationFailed, leader), false},
		"two wraps":         {fmt.Errorf("%w: %w", leader, sarama.ErrClosedClient), false},
	} {
		require.Equal(t, c.want, onlyLeaders(c.err), name)
	}
}

// someLed is a client that knows the partitions of one topic with four of them.
type someLed struct {
	sarama.Client
	waiting []int32
}

func (c someLed) Partitions(string) ([]int32, error) { return []int32{0, 1, 2, 3}, nil }

func (c someLed) PartitionNotReadable(_ string, id int32) bool { return slices.Contains(c.waiting, id) }

// refreshed is a client that counts the refreshes of metadata, and the claims of a session.
type refreshed struct {
	sarama.Client
	mu      sync.Mutex
	claimed map[string][]int32
	waiting []int32
	topics  []string
}

func (c *refreshed) PartitionNotReadable(_ string, id int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.waiting, id)
}

func (c *refreshed) RefreshMetadata(topics ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics = append(c.topics, topics...)
	return sarama.ErrLeaderNotAvailable
}

func (c *refreshed) claims() map[string][]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.claimed
}

// TestFindLeaders_K18: a session asks for the leaders that are missing, also for those of partitions
// that a rebalance has added, and for no others.
func TestFindLeaders_K18(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var c refreshed
		done := make(chan struct{})
		go func() {
			defer close(done)
			findLeaders(ctx, &c, c.claims)
		}()
		// asked returns the topics of the next look.
		asked := func(claimed map[string][]int32, waiting ...int32) []string {
			c.mu.Lock()
			c.claimed, c.waiting, c.topics = claimed, waiting, nil
			c.mu.Unlock()
			time.Sleep(leaderPause)
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.topics
		}
		synctest.Wait()
		before := map[string][]int32{"orders": {0, 1}, "stock": {2}}
		after := map[string][]int32{"orders": {0}, "stock": {1}}
		require.Empty(t, asked(before), "all leaders are known")
		require.Equal(t, []string{"orders"}, asked(before, 0, 1))
		require.Equal(t, []string{"orders"}, asked(before, 0, 1), "again")
		require.Equal(t, []string{"orders", "stock"}, asked(after, 0, 1), "after a rebalance")
		require.Empty(t, asked(after), "the leaders are back")
		cancel()
		<-done
	})
}

// TestLedOffsets_K29: a partition that a session prepares is asked for, also if it loses its leader
// meanwhile. With Newest it would otherwise begin behind copies.
func TestLedOffsets_K29(t *testing.T) {
	client := someLed{waiting: []int32{1, 3}}
	claims, waiting := withLeader(client, map[string][]int32{"retry": {0, 1}, "orders": {3}})
	require.Equal(t, map[string][]int32{"retry": {0}}, claims)
	require.ElementsMatch(t, []runner.TopicPartition{{Topic: "retry", Partition: 1}, {Topic: "orders", Partition: 3}}, waiting)
	client.waiting = []int32{0, 1, 3}
	all, err := ledOffsets{logOffsets{client}, claims}.Partitions(t.Context(), []string{"retry"})
	require.NoError(t, err)
	require.ElementsMatch(t, []int32{0, 2}, all["retry"])
}
