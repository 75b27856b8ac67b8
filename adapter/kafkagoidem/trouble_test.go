package kafkagoidem

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/observe"
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

// TestRebalanceBeforeBegin_K11: a generation ends before the offsets of its partitions are known.
// No request without a topic is sent: brokers answer it without a look at the group, so it would
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

// onLinks returns a fake Kafka with a topic of one partition, and a Config with connections that
// can be broken.
func onLinks(t *testing.T) (brokers []string, topic string, cfg Config, links *netproxy.Links) {
	t.Helper()
	brokers, topic, cfg = onFake(t, 1)
	links = new(netproxy.Links)
	cfg.Dial, cfg.Grace = links.DialContext, time.Second
	return brokers, topic, cfg, links
}

// waitCommitted waits until the group has committed n events, and the runner is ready. After an
// outage a runner handles events before it knows that the group has removed it.
func (m *running) waitCommitted(t *testing.T, brokers []string, topic string, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		sum, _ := committed(t, brokers, m.cfg.Group, topic)
		return sum == n && m.Ready() == nil
	}, soon, 100*time.Millisecond)
}

// TestOutage_K24: brokers refuse connections, at the start and later, and come back. Run waits.
func TestOutage_K24(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg, links := onLinks(t)
	produceEvents(t, brokers, topic, 0, 10)
	mend := links.Refuse(errTest)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return strings.Contains(m.String(), "cannot consume") }, soon, poll)
	require.ErrorIs(t, m.Ready(), runner.ErrNotReady)
	mend()
	require.Eventually(t, func() bool { return got.events() == 10 && m.Ready() == nil }, soon, poll)
	mend = links.Refuse(errTest)
	produceEvents(t, brokers, topic, 10, 20)
	require.Eventually(t, func() bool { return m.Ready() != nil }, soon, poll)
	require.NoError(t, m.Live())
	mend()
	m.waitCommitted(t, brokers, topic, 20)
	require.NoError(t, m.end())
	require.Equal(t, 20, got.total())
}

// TestCut_K15: connections are cut again and again, and all events arrive once.
func TestCut_K15(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg, links := onLinks(t)
	var got tally
	m := start(t, cfg, routed(got.handle))
	for n := 0; n < 30; n += 10 {
		produceEvents(t, brokers, topic, n, n+10)
		require.Eventually(t, func() bool { return got.events() == n+10 }, soon, poll)
		links.Cut()
	}
	m.waitCommitted(t, brokers, topic, 30)
	require.NoError(t, m.end())
	require.Equal(t, 30, got.total())
}

// TestSilence_K15: brokers accept connections and do not answer, for longer than a session. The
// events arrive after that, in the same Run.
func TestSilence_K15(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg, links := onLinks(t)
	cfg.SessionTimeout = 3 * time.Second
	produceEvents(t, brokers, topic, 0, 10)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	restore := links.Silence()
	produceEvents(t, brokers, topic, 10, 20)
	require.NoError(t, runner.Pause(t.Context(), 5*time.Second))
	require.Equal(t, 10, got.total())
	restore()
	m.waitCommitted(t, brokers, topic, 20)
	require.NoError(t, m.end())
	require.Equal(t, 20, got.total())
}

// TestStopWhileSilent_K38: a stop is bounded while brokers accept connections and do not answer,
// also at the start.
func TestStopWhileSilent_K38(t *testing.T) {
	t.Parallel()
	for _, starting := range []bool{false, true} {
		t.Run(fmt.Sprintf("starting=%v", starting), func(t *testing.T) {
			t.Parallel()
			brokers, topic, cfg, links := onLinks(t)
			cfg.CommitInterval = time.Hour
			produceEvents(t, brokers, topic, 0, 10)
			if starting {
				defer links.Silence()()
			}
			var got tally
			m := start(t, cfg, routed(got.handle))
			if starting {
				require.NoError(t, runner.Pause(t.Context(), time.Second))
			} else {
				require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
				defer links.Silence()()
			}
			began := time.Now()
			err := m.end()
			require.Less(t, time.Since(began), cfg.Grace+20*time.Second, "the documented bound")
			t.Logf("stopped after %s", time.Since(began))
			if !starting {
				require.ErrorIs(t, err, runner.ErrNotCommitted)
			}
		})
	}
}

// stalls collects reports of stalls.
type stalls struct {
	mu   sync.Mutex
	over []bool
}

func (s *stalls) ObservePartitionStall(_ context.Context, e observe.PartitionStallEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = append(s.over, e.Over)
}

func (s *stalls) seen() []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.over)
}

// TestStall_K13: a handler hangs, and each policy acts.
func TestStall_K13(t *testing.T) {
	t.Parallel()
	for _, policy := range []runner.StallPolicy{runner.ReportStall, runner.LeaveGroup, runner.ExitOnStall} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			brokers, topic, cfg := onFake(t, 1)
			seen := new(stalls)
			cfg.StallTimeout, cfg.WhenStalled, cfg.Observers = time.Second, policy, []observe.Observer{seen}
			produceEvents(t, brokers, topic, 0, 3)
			var got tally
			hold := make(chan struct{})
			m := start(t, cfg, routed(func(ctx context.Context, m *idem.Message) error {
				if got.add(eventID(m)) == 1 && eventID(m) == "1" {
					select {
					case <-hold:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				return nil
			}))
			require.Eventually(t, func() bool { return len(seen.seen()) > 0 && !seen.seen()[0] }, soon, poll)
			switch policy {
			case runner.ReportStall:
				require.ErrorIs(t, m.Ready(), runner.ErrNotReady)
				require.NoError(t, m.Live())
				close(hold)
			case runner.ExitOnStall:
				require.ErrorIs(t, m.wait(t, soon), runner.ErrStalled)
				return
			case runner.LeaveGroup: // the event runs again, and is not held
			}
			require.Eventually(t, func() bool { return got.events() == 3 }, soon, poll)
			require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
			require.NoError(t, m.end())
			sum, _ := committed(t, brokers, cfg.Group, topic)
			require.EqualValues(t, 3, sum)
		})
	}
}

// TestKfake_DeletedTopic_K27: a deleted topic of the subscription keeps no member from consuming
// the others, also after a rebalance. It is read again when it is back.
func TestKfake_DeletedTopic_K27(t *testing.T) {
	brokers := fakeBrokers(t, 2, "a", "b")
	cfg := configFor(brokers, "a")
	cfg.Topics, cfg.Store, cfg.OnGap = []string{"a", "b"}, forever(), runner.EarliestOnGap
	often := func(r *Runner) { r.life.Topics.Every = time.Second }
	var got tally
	one := start(t, cfg, routed(got.handle), often)
	two := start(t, cfg, routed(got.handle), often)
	require.Eventually(t, func() bool { return one.claims() == 2 && two.claims() == 2 }, soon, poll)
	produceEvents(t, brokers, "a", 0, 10)
	produceEvents(t, brokers, "b", 10, 20)
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)

	admin := kadm.NewClient(clientOf(t, brokers))
	_, err := admin.DeleteTopic(t.Context(), "b")
	require.NoError(t, err)
	missing := func(m *running) bool {
		return slices.Equal(m.life.Topics.Missing(), []string{"b"}) && m.Ready() != nil
	}
	require.Eventually(t, func() bool { return missing(one) && missing(two) }, soon, poll)
	require.NoError(t, one.end())
	produceEvents(t, brokers, "a", 20, 30)
	require.Eventually(t, func() bool { return got.events() == 30 }, soon, poll)

	_, err = admin.CreateTopic(t.Context(), 2, 1, nil, "b")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return two.Ready() == nil && two.claims() == 4 }, soon, poll)
	produceEvents(t, brokers, "b", 30, 40)
	require.Eventually(t, func() bool { return got.events() == 40 }, soon, poll)
	require.NoError(t, two.end())
}
