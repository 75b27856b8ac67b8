package kgoidem

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

// onCluster returns a fake Kafka with the topic "orders", for faults, and a Config for it.
func onCluster(t *testing.T, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, Config) {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.SeedTopics(partitions, "orders"), kfake.GroupMinSessionTimeout(time.Second),
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "300"}),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster, configFor(cluster.ListenAddrs(), "orders")
}

// holder is a handler that keeps an event until it is freed, or cancelled.
type holder struct {
	tally
	event string
	began chan struct{}
	free  chan struct{}
	once  sync.Once
}

func newHolder(event string) *holder {
	return &holder{event: event, began: make(chan struct{}), free: make(chan struct{})}
}

func (h *holder) handle(ctx context.Context, m *idem.Message) error {
	if eventID(m) == h.event {
		h.once.Do(func() { close(h.began) })
		select {
		case <-h.free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	h.add(eventID(m))
	return nil
}

// only returns the one partition of source topics that a member has.
func (m *running) only(t *testing.T) int32 {
	t.Helper()
	all := slices.DeleteFunc(m.group.Assignments(), func(a *runner.Assignment) bool {
		return runner.IsRetry(a.Topic, m.cfg.Group)
	})
	require.Len(t, all, 1)
	return all[0].Partition
}

// leaderless is a member whose handler runs, and which has just got a partition without a leader.
type leaderless struct {
	*running
	*holder
	cluster *kfake.Cluster
	missing *kfake.FaultHandle // of the leader
}

// startLeaderless returns when the leader of the new partition was asked for again and again.
func startLeaderless(t *testing.T, protocol Protocol) leaderless {
	t.Helper()
	cluster, cfg := onCluster(t, 2)
	cfg.Protocol, cfg.Store = protocol, forever()
	h := newHolder("held")
	m := start(t, cfg, routed(h.handle))
	require.Eventually(t, func() bool { return m.claims() == 2 }, soon, poll)
	other := start(t, cfg, routed(h.handle))
	require.Eventually(t, func() bool { return m.claims() == 1 && other.claims() == 1 }, soon, poll)
	kept := m.only(t)
	held := record("orders", 0)
	held.Partition, held.Headers[0].Value = kept, []byte(h.event)
	require.NoError(t, manual(t, cfg.Brokers).ProduceSync(t.Context(), held).FirstErr())
	<-h.began
	missing := cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Partitions: []int32{1 - kept},
		Err: kerr.LeaderNotAvailable, Count: -1,
	})
	require.NoError(t, other.end())
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	// One try to begin asks for newTopicWait.
	require.NoError(t, missing.Wait(ctx, missing.Hits()+int(2*newTopicWait/freshMetadata)))
	return leaderless{running: m, holder: h, cluster: cluster, missing: missing}
}

// TestLeaderless_K18: a new partition without a leader waits. The partitions that a member has run
// on, and their handlers are not cancelled.
func TestLeaderless_K18(t *testing.T) {
	for _, protocol := range []Protocol{Cooperative, NextGeneration} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			m := startLeaderless(t, protocol)
			require.Contains(t, m.String(), "cannot consume")
			close(m.free)
			require.Eventually(t, func() bool { return m.events() == 1 }, soon, poll)
			next := record("orders", 1)
			next.Partition = m.only(t)
			brokers := m.cluster.ListenAddrs()
			require.NoError(t, manual(t, brokers).ProduceSync(t.Context(), next).FirstErr())
			require.Eventually(t, func() bool { return m.events() == 2 }, soon, poll, "it consumes on")
			m.missing.Remove()
			require.Eventually(t, func() bool { return m.claims() == 2 }, soon, poll)
			produceEvents(t, brokers, "orders", 2, 12)
			require.Eventually(t, func() bool { return m.events() == 12 }, soon, poll)
			require.NoError(t, m.end())
			require.Equal(t, 12, m.total())
		})
	}
}

// TestLeaderless_Stop_K18: a stop while a new partition waits for its leader lets running handlers
// finish, and the member stays in the group meanwhile.
func TestLeaderless_Stop_K18(t *testing.T) {
	for protocol, beat := range map[Protocol]kmsg.Key{
		Cooperative: kmsg.Heartbeat, NextGeneration: kmsg.ConsumerGroupHeartbeat,
	} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			m := startLeaderless(t, protocol)
			m.stop()
			beats := m.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{beat}, Count: -1, Observe: true, TopLevel: true})
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			require.NoError(t, beats.Wait(ctx, 3))
			close(m.free)
			require.NoError(t, m.end())
			require.Equal(t, 1, m.total())
			sum, _ := committed(t, m.cluster.ListenAddrs(), m.cfg.Group, "orders")
			require.EqualValues(t, 1, sum)
		})
	}
}
