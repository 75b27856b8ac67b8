package consumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/runner"
)

// holding leaves requests of one kind unanswered.
type holding struct {
	held    atomic.Int64
	once    sync.Once
	release chan struct{}
}

func (h *holding) letGo() { h.once.Do(func() { close(h.release) }) }

// hold leaves the next requests of a kind unanswered until letGo, or until the end of the test.
func hold(t *testing.T, cluster *kfake.Cluster, key kmsg.Key) *holding {
	t.Helper()
	h := &holding{release: make(chan struct{})}
	t.Cleanup(h.letGo)
	cluster.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-h.release:
			cluster.DropControl()
			return nil, nil, false
		default:
		}
		cluster.KeepControl()
		h.held.Add(1)
		cluster.SleepControl(func() { <-h.release })
		return nil, nil, false
	})
	return h
}

// rebalanceOnce answers the next heartbeat with the news that the group rebalances.
func rebalanceOnce(cluster *kfake.Cluster) {
	cluster.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.RebalanceInProgress.Code
		return resp, nil, true
	})
}

func oneBroker(t *testing.T) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders.g.dlq"), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

// K-03: a member that is stopped while it joins the group has no running event, and does not wait
// for the group.
func TestKfake_StopWhileJoining_K03(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup} {
		for _, instance := range []string{"", "pod-0"} {
			t.Run(fmt.Sprintf("%s,instance=%q", key.Name(), instance), func(t *testing.T) {
				cluster := oneBroker(t)
				h := hold(t, cluster, key)
				m := start(t, Config{
					Brokers: cluster.ListenAddrs(), Group: "g", Topics: []string{"orders"}, Grace: 20 * time.Second, InstanceID: instance,
				}, routed(nothing))
				require.Eventually(t, func() bool { return h.held.Load() > 0 }, soon, poll)
				began := time.Now()
				require.NoError(t, m.end())
				require.Less(t, time.Since(began), 5*time.Second)
			})
		}
	}
}

// K-03: brokers that accept connections and never answer do not hold up a stop.
func TestKfake_StopWhileConnecting_K03(t *testing.T) {
	t.Run("several", func(t *testing.T) {
		m := start(t, Config{
			Brokers: []string{testenv.SilentAddr(t), testenv.SilentAddr(t)}, Group: "g", Topics: []string{"orders"}, Grace: 20 * time.Second,
		}, routed(nothing))
		_ = pause(t.Context(), 100*time.Millisecond) // any place of the search will do
		began := time.Now()
		require.NoError(t, m.end())
		require.Less(t, time.Since(began), 5*time.Second)
	})
	for _, key := range []kmsg.Key{kmsg.ApiVersions, kmsg.Metadata, kmsg.FindCoordinator} {
		t.Run(key.Name(), func(t *testing.T) {
			cluster := oneBroker(t)
			h := hold(t, cluster, key)
			m := start(t, Config{Brokers: cluster.ListenAddrs(), Group: "g", Topics: []string{"orders"}, Grace: 20 * time.Second}, routed(nothing))
			require.Eventually(t, func() bool { return h.held.Load() > 0 }, soon, poll)
			began := time.Now()
			require.NoError(t, m.end())
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

// K-03: a member is stopped in the middle of a cooperative rejoin, in which sarama commits nothing.
// The events that it handled meanwhile are committed all the same, or Run returns an error.
func TestKfake_StopInRejoin_K03(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key      kmsg.Key
		instance string
		answer   bool // the request is answered after the stop
		want     error
	}{
		"join":                       {key: kmsg.JoinGroup},
		"static join":                {key: kmsg.JoinGroup, instance: "pod-0"},
		"join, answered late":        {key: kmsg.JoinGroup, answer: true},
		"sync":                       {key: kmsg.SyncGroup, want: ErrNotCommitted}, // no broker takes an offset before that
		"sync, answered late":        {key: kmsg.SyncGroup, answer: true},
		"static sync, answered late": {key: kmsg.SyncGroup, instance: "pod-0", answer: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := oneBroker(t)
			brokers := cluster.ListenAddrs()
			gate := make(chan struct{})
			var got tally
			m := start(t, Config{
				Brokers: brokers, Group: "g", Topics: []string{"orders"}, Cooperative: true, CommitInterval: 50 * time.Millisecond,
				Grace: 20 * time.Second, InstanceID: c.instance,
			}, routed(func(ctx context.Context, m *idem.Message) error {
				if got.events() == 2 {
					<-gate
				}
				got.add(eventID(m))
				return nil
			}))
			require.Eventually(t, func() bool { return claimsOf(m) == 1 }, soon, poll)
			produceEvents(t, brokers, "orders", 0, 40)
			require.Eventually(t, func() bool { return committed(t, brokers, "g", "orders", 0)[0] == 2 }, soon, poll)
			h := hold(t, cluster, c.key)
			rebalanceOnce(cluster)
			require.Eventually(t, func() bool { return h.held.Load() > 0 }, soon, poll)
			close(gate)
			require.Eventually(t, func() bool { return got.events() == 40 }, soon, poll)
			if c.answer {
				time.AfterFunc(2*time.Second, h.letGo)
			}
			began := time.Now()
			err := m.end()
			require.Less(t, time.Since(began), 10*time.Second)
			require.Equal(t, 40, got.total())
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, "orders/0 before 40")
				return
			}
			require.NoError(t, err)
			require.EqualValues(t, 40, committed(t, brokers, "g", "orders", 0)[0])
		})
	}
}

// rule 13: a stop in the middle of a rejoin still gives running handlers the grace.
func TestKfake_StopInRejoinDrains_Rule13(t *testing.T) {
	t.Parallel()
	cluster := oneBroker(t)
	brokers := cluster.ListenAddrs()
	var got tally
	begun, gate := make(chan struct{}, 10), make(chan struct{})
	m := start(t, Config{
		Brokers: brokers, Group: "g", Topics: []string{"orders"}, Cooperative: true, CommitInterval: 50 * time.Millisecond, Grace: 20 * time.Second,
	}, routed(func(ctx context.Context, m *idem.Message) error {
		begun <- struct{}{}
		select {
		case <-gate:
			got.add(eventID(m))
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	require.Eventually(t, func() bool { return claimsOf(m) == 1 }, soon, poll)
	produceEvents(t, brokers, "orders", 0, 10)
	<-begun
	h := hold(t, cluster, kmsg.JoinGroup)
	rebalanceOnce(cluster)
	require.Eventually(t, func() bool { return h.held.Load() > 0 }, soon, poll)
	session := m.handler.anyContext()
	began := time.Now()
	m.stop()
	<-session.Done() // the handler runs on when the session has ended
	_ = pause(t.Context(), 2*time.Second)
	close(gate)
	require.NoError(t, m.end())
	require.Less(t, time.Since(began), 8*time.Second)
	require.Equal(t, 1, got.total(), "what ran has ended in order, and nothing more began")
	require.EqualValues(t, 1, committed(t, brokers, "g", "orders", 0)[0])
}

// K-03: brokers that fall silent do not hold up a stop beyond its bound, and Run does not claim
// that all is committed.
func TestKfake_StopWhileSilent_K03(t *testing.T) {
	t.Parallel()
	for _, cooperative := range []bool{false, true} {
		t.Run(fmt.Sprintf("cooperative=%v", cooperative), func(t *testing.T) {
			cluster := oneBroker(t)
			brokers := cluster.ListenAddrs()
			net := new(netproxy.Links)
			cfg := Config{
				Brokers: brokers, Group: "g", Topics: []string{"orders"}, Cooperative: cooperative, CommitInterval: time.Hour, Grace: 2 * time.Second,
				Sarama: func(sc *sarama.Config) {
					quick(sc)
					sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, net
				},
			}
			var got tally
			m := start(t, cfg, routed(got.handle))
			produceEvents(t, brokers, "orders", 0, 10)
			require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
			defer net.Silence()()
			began := time.Now()
			err := m.end()
			require.ErrorIs(t, err, ErrNotCommitted)
			require.Less(t, time.Since(began), runner.CommitWait+releaseWait+leaveWait+flushWait+time.Second, "no handler ran")
		})
	}
}
