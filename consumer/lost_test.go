package consumer

import (
	"context"
	"net"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
)

// TestKfake_Lost_K11: the group has removed the member. Running handlers are cancelled at once, no
// offset is committed for partitions that may have another owner, and the consumer joins again.
func TestKfake_Lost_K11(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]int16{"heartbeat": int16(kmsg.Heartbeat), "cooperative rejoin": int16(kmsg.JoinGroup)} {
		t.Run(name, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders", "orders.g.dlq"), kfake.GroupMinSessionTimeout(time.Second))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			brokers := cluster.ListenAddrs()
			causes := make(chan error, 10)
			var kinds atomic.Int64
			cfg := Config{
				Brokers: brokers, Group: "g", Topics: []string{"orders"}, Cooperative: true, Store: forever(),
				Observers: []observe.Observer{rebalances(func(e observe.RebalanceEvent) {
					if e.Kind == observe.Lost {
						kinds.Add(1)
					}
				})},
			}
			var runs atomic.Int64
			handle := func(ctx context.Context, _ *idem.Message) error {
				if runs.Add(1) > 1 {
					return nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			}
			m := start(t, cfg, routed(handle))
			require.Eventually(t, func() bool { return claimsOf(m) == 2 }, soon, poll)
			produceEvents(t, brokers, "orders", 0, 1)
			require.Eventually(t, func() bool { return runs.Load() == 1 }, soon, poll)

			throwOut(cluster, request, m.handler.anyMember())
			if name != "heartbeat" {
				other := start(t, cfg, routed(handle)) // makes us join again
				defer other.stop()
			}
			began := time.Now()
			require.ErrorIs(t, <-causes, idem.ErrPartitionLost)
			require.Less(t, time.Since(began), 5*time.Second)
			require.Eventually(t, func() bool { return kinds.Load() == 1 }, soon, poll)
			require.Eventually(t, func() bool { return m.Ready() == nil && claimsOf(m) > 0 }, soon, poll, "does not join again")
			require.Eventually(t, func() bool { return runs.Load() == 2 }, soon, poll, "not delivered again")
		})
	}
}

// throwOut answers the next request of a member with UNKNOWN_MEMBER_ID.
func throwOut(cluster *kfake.Cluster, request int16, member string) {
	var done atomic.Bool
	cluster.ControlKey(request, func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		switch req := req.(type) {
		case *kmsg.HeartbeatRequest:
			if req.MemberID == member && done.CompareAndSwap(false, true) {
				resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
				resp.ErrorCode = kerr.UnknownMemberID.Code
				return resp, nil, true
			}
		case *kmsg.JoinGroupRequest:
			if req.MemberID == member && done.CompareAndSwap(false, true) {
				resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
				resp.ErrorCode = kerr.UnknownMemberID.Code
				return resp, nil, true
			}
		}
		return nil, nil, false
	})
}

// TestKfake_StartStop_K38: no goroutine or connection is left after starts and stops.
func TestKfake_StartStop_K38(t *testing.T) {
	brokers := fakeBrokers(t, 4, "orders", "orders.g.dlq")
	produceEvents(t, brokers, "orders", 0, 50)
	cfg := Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Store: forever()}
	once := func(wait time.Duration) {
		m := start(t, cfg, routed(nothing))
		if wait < 0 {
			require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
		} else {
			_ = pause(t.Context(), wait)
		}
		began := time.Now()
		require.NoError(t, m.end())
		require.Less(t, time.Since(began), 5*time.Second)
	}
	once(-1)
	before := runtime.NumGoroutine()
	for i := range 20 {
		once(time.Duration(i*5)*time.Millisecond - 1)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+5 }, soon, 100*time.Millisecond, "goroutines left behind")
}

// TestKfake_BrokersComeAndGo_K21: brokers that are not there at start, and go later, are waited
// for; one line tells each change.
func TestKfake_BrokersComeAndGo_K21(t *testing.T) {
	t.Parallel()
	addr := testenv.FreeAddr(t)
	_, text, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	up := func() *kfake.Cluster {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.SeedTopics(2, "orders", "orders.g.dlq"),
			kfake.GroupMinSessionTimeout(time.Second))
		require.NoError(t, err)
		return cluster
	}
	var got tally
	m := start(t, Config{Brokers: []string{addr}, Group: "g", Topics: []string{"orders"}, OnGap: EarliestOnGap}, routed(got.handle))
	require.Eventually(t, func() bool { return m.count("cannot consume") == 1 }, soon, poll)

	cluster := up()
	require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
	require.Equal(t, 1, m.count("consuming again"))
	produceEvents(t, []string{addr}, "orders", 0, 10)
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)

	cluster.Close()
	require.Eventually(t, func() bool { return m.Ready() != nil }, soon, poll)
	cluster = up() // without memory
	defer cluster.Close()
	produceEvents(t, []string{addr}, "orders", 10, 20)
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	require.NoError(t, m.Ready())
	require.NoError(t, m.end())
	require.Equal(t, 20, got.total())
}
