package kgoidem

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// TestKafka_Upgrade_K26 moves a group online from the classic protocol to that of KIP-848, member
// by member, while events come, and back.
func TestKafka_Upgrade_K26(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 6)
	cfg.Store, cfg.Grace = forever(), 5*time.Second
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	var got tally
	slow := func(ctx context.Context, m *idem.Message) error {
		got.add(eventID(m))
		return runner.Pause(ctx, 5*time.Millisecond)
	}
	sent := 0
	step := func() {
		t.Helper()
		produceEvents(t, brokers, topic, sent, sent+200)
		sent += 200
		require.Eventually(t, func() bool { return got.events() > sent-150 }, soon, poll)
	}
	member := func(protocol Protocol) *running {
		t.Helper()
		cfg.Protocol = protocol
		m := start(t, cfg, routed(slow))
		require.Eventually(t, func() bool { return m.claims() > 0 }, soon, poll)
		step()
		return m
	}
	group := []*running{member(Cooperative), member(Cooperative)}
	for _, protocol := range []Protocol{NextGeneration, NextGeneration, Cooperative, Cooperative} {
		group = append(group, member(protocol))
		require.NoError(t, group[0].end())
		group = group[1:]
		step()
	}
	require.Eventually(t, func() bool { return got.events() == sent }, soon, poll)
	for _, m := range group {
		require.NoError(t, m.end())
	}
	require.Equal(t, sent, got.total())
	require.Empty(t, again.seen())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, sent, sum)
}

// TestStopWhileOthersHold_K38: a member stops while the group waits for the slow handler of another
// member. The stop does not wait for that, and commits.
func TestStopWhileOthersHold_K38(t *testing.T) {
	for _, protocol := range []Protocol{Cooperative, Eager, NextGeneration} {
		t.Run(protocol.String(), func(t *testing.T) {
			brokers, topic, cfg := onKafka(t, 4)
			cfg.Protocol, cfg.Store, cfg.CommitInterval = protocol, forever(), time.Hour
			cfg.Grace = 20 * time.Second
			members := membersOf(t, brokers, cfg)
			var got tally
			hold := make(chan struct{})
			var once sync.Once
			free := func() { once.Do(func() { close(hold) }) }
			defer free()
			quickOne := start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return quickOne.claims() == 4 }, soon, poll)
			slowOne := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
				got.add(eventID(m))
				<-hold
				return nil
			}))
			require.Eventually(t, func() bool { return slowOne.claims() == 2 && quickOne.claims() == 2 }, soon, poll)
			produceEvents(t, brokers, topic, 0, 100)
			require.Eventually(t, func() bool { return got.events() > 20 }, soon, poll)
			third := start(t, cfg, routed(got.handle)) // begins a rebalance, which the slow one holds up
			require.Eventually(t, func() bool { return members() == 3 }, soon, poll)
			began := time.Now()
			require.NoError(t, quickOne.end())
			require.Less(t, time.Since(began), 10*time.Second)
			sum, _ := committed(t, brokers, cfg.Group, topic)
			require.GreaterOrEqual(t, sum, int64(20))
			free()
			require.Eventually(t, func() bool { return got.events() == 100 }, soon, poll)
			require.NoError(t, slowOne.end())
			require.NoError(t, third.end())
			require.Equal(t, 100, got.total())
		})
	}
}

// membersOf returns a function that asks the group's coordinator for the number of members.
func membersOf(t *testing.T, brokers []string, cfg Config) func() int {
	t.Helper()
	admin := kadm.NewClient(clientOf(t, brokers))
	if cfg.Protocol == NextGeneration {
		return func() int {
			groups, err := admin.DescribeConsumerGroups(t.Context(), cfg.Group)
			require.NoError(t, err)
			return len(groups[cfg.Group].Members)
		}
	}
	return func() int {
		groups, err := admin.DescribeGroups(t.Context(), cfg.Group)
		require.NoError(t, err)
		return len(groups[cfg.Group].Members)
	}
}

// TestOutage_K24: the brokers go away and come back. Run waits, and a stop during the outage is
// bounded.
func TestOutage_K24(t *testing.T) {
	brokers, topic, cfg := onFake(t, 1)
	wire := new(netproxy.Links)
	cfg.Options = append(cfg.Options, kgo.Dialer(wire.DialContext))
	produceEvents(t, brokers, topic, 0, 10)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	mend := wire.Refuse(errTest)
	produceEvents(t, brokers, topic, 10, 20)
	require.Eventually(t, func() bool { return m.Ready() != nil }, time.Minute, poll)
	require.NoError(t, m.Live())
	mend()
	require.Eventually(t, func() bool { return got.events() == 20 && m.Ready() == nil }, time.Minute, poll)
	wire.Refuse(errTest)
	began := time.Now()
	_ = m.end() // whether the last commit was confirmed depends on its time
	require.Less(t, time.Since(began), 20*time.Second)
	require.Equal(t, 20, got.total())
}

// TestNotCommitted_K05: a stop without an answer to the last commit is an error. The store then has
// no position of a group without a committed offset, and the next start is not refused (K-19).
func TestNotCommitted_K05(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg := configFor(cluster.ListenAddrs(), "orders")
	produceEvents(t, cfg.Brokers, "orders", 0, 10)
	store := newRecalling()
	cfg.Store = store
	var got tally
	var refuses atomic.Bool
	refuses.Store(true)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		commit, ok := req.(*kmsg.OffsetCommitRequest)
		if !ok || !refuses.Load() {
			return nil, nil, false
		}
		return refuseCommit(commit, kerr.NotEnoughReplicas), nil, true
	})
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.ErrorIs(t, m.end(), runner.ErrNotCommitted)
	require.Zero(t, store.of("orders", 0).Next)

	refuses.Store(false)
	m = start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool {
		sum, _ := committed(t, cfg.Brokers, cfg.Group, "orders")
		return sum == 10
	}, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 10, got.total())
	require.EqualValues(t, 10, store.of("orders", 0).Next)
}

// TestOldBrokers_K37: the protocol of KIP-848 is not replaced by another one without a word.
func TestOldBrokers_K37(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.ApiVersions), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp, _ := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		for key := range int16(60) {
			if r := kmsg.RequestForKey(key); r != nil {
				resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: min(r.MaxVersion(), 7)})
			}
		}
		return resp, nil, true
	})
	cfg := configFor(cluster.ListenAddrs(), "orders")
	cfg.Protocol = NextGeneration
	require.ErrorIs(t, start(t, cfg, routed(new(tally).handle)).wait(t, soon), errOldBrokers)
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
	return append([]bool(nil), s.over...)
}

// TestStall_K13: a handler hangs, and each policy acts.
func TestStall_K13(t *testing.T) {
	for _, policy := range []runner.StallPolicy{runner.ReportStall, runner.LeaveGroup, runner.ExitOnStall} {
		t.Run(policy.String(), func(t *testing.T) {
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

// TestDataLoss_K32: franz-go reports that the log was cut below the position. The policy decides,
// and the runner goes on where the other records begin.
func TestDataLoss_K32(t *testing.T) {
	for policy, again := range map[runner.GapPolicy]int{
		runner.FailOnGap: 0, runner.EarliestOnGap: 7, runner.LatestOnGap: 0,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			brokers, topic, cfg := onFake(t, 1)
			known, seen := new(duplicates), new(gaps)
			cfg.OnGap, cfg.Observers = policy, []observe.Observer{known, seen}
			produceEvents(t, brokers, topic, 0, 10)
			var got tally
			m := start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
			m.current.Load().dataLoss(&kgo.ErrDataLoss{Topic: topic, ConsumedTo: 10, ResetTo: 3})
			require.Len(t, seen.seen(), 1)
			if policy == runner.FailOnGap {
				var gap *runner.GapError
				require.ErrorAs(t, m.wait(t, soon), &gap)
				return
			}
			produceEvents(t, brokers, topic, 10, 11)
			require.Eventually(t, func() bool { return got.events() == 11 }, soon, poll)
			require.NoError(t, m.end())
			require.Len(t, known.seen(), again, "records that have taken the offsets of others are read")
			require.Equal(t, 11, got.total())
		})
	}
}

// TestDataLossBehindTheWatermark_K32: the records between the first unfinished event and the place
// of the cut are in the log, and run.
func TestDataLossBehindTheWatermark_K32(t *testing.T) {
	for _, policy := range []runner.GapPolicy{runner.EarliestOnGap, runner.LatestOnGap} {
		t.Run(policy.String(), func(t *testing.T) {
			brokers, topic, cfg := onFake(t, 1)
			cfg.OnGap, cfg.Grace = policy, 200*time.Millisecond
			produceEvents(t, brokers, topic, 0, 10)
			var got tally
			m := start(t, cfg, routed(func(ctx context.Context, m *idem.Message) error {
				if m.Offset == 2 && got.total() == 2 {
					got.add("begun")
					<-ctx.Done()
					return ctx.Err()
				}
				return got.handle(ctx, m)
			}))
			require.Eventually(t, func() bool { return got.total() == 3 }, soon, poll)
			m.current.Load().dataLoss(&kgo.ErrDataLoss{Topic: topic, ConsumedTo: 10, ResetTo: 5})
			require.Eventually(t, func() bool { return got.events() == 11 }, soon, poll)
			require.NoError(t, m.end())
			require.Equal(t, 11, got.total())
		})
	}
}

// A cut log moves no mark forward, and no mark passes the cut.
func TestMarksOfACutLog_K32(t *testing.T) {
	p := partition{Topic: "orders"}
	for name, c := range map[string]struct {
		begins  runner.Place
		before  int64 // marked before the cut at 5; 0: nothing
		after   int64 // marked behind it; 0: nothing
		pending map[partition]int64
	}{
		"nothing settled":     {runner.Place{Offset: 2}, 0, 0, map[partition]int64{}},
		"begins behind":       {runner.Place{Offset: 7}, 0, 0, map[partition]int64{p: 5}},
		"settled before":      {runner.Place{}, 3, 0, map[partition]int64{p: 3}},
		"settled behind":      {runner.Place{}, 8, 0, map[partition]int64{p: 5}},
		"settled later":       {runner.Place{}, 0, 4, map[partition]int64{p: 4}},
		"settled later, past": {runner.Place{}, 3, 9, map[partition]int64{p: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(&member{ctx: t.Context()})
			s.begins(p, c.begins, new(epochs))
			if c.before > 0 {
				s.Mark(p, c.before)
			}
			s.cut(p, 5)
			if c.after > 0 {
				s.Mark(p, c.after)
			}
			require.Equal(t, c.pending, s.marks)
		})
	}
	s := newSession(&member{ctx: t.Context()})
	s.cut(p, 5)
	require.Empty(t, s.marks, "the partition was given back")
}

// TestNoLeader_Rule8: a partition without a leader keeps no other partition from being caught up.
// It is caught up when it has a leader again.
func TestNoLeader_Rule8(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "orders"),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg, store := configFor(cluster.ListenAddrs(), "orders"), newRecalling()
	cfg.Store = store
	produceEvents(t, cfg.Brokers, "orders", 0, 20)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	caughtUp := func(id int32) bool { return store.of("orders", id).CaughtUp }
	headless := cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders", Partitions: []int32{1},
		Err: kerr.LeaderNotAvailable, Count: -1,
	})
	both := map[string][]int32{"orders": {0, 1}}
	require.Eventually(t, func() bool {
		ends, err := m.offsets.Ends(t.Context(), both)
		return err == nil && len(ends) == 1
	}, soon, poll, "the client learns that a leader is missing")
	// It returns after newTopicWait. An end of the context may come first within a request, and
	// then the error is that of the context.
	found, err := m.offsets.Newest(t.Context(), both)
	var one *runner.OffsetError
	require.ErrorAs(t, err, &one)
	require.ErrorIs(t, err, kerr.LeaderNotAvailable)
	require.Equal(t, partition{Topic: "orders", Partition: 1}, one.TopicPartition)
	require.Len(t, found, 1)
	require.Eventually(t, func() bool {
		m.current.Load().session.on.RecordProgress()
		return caughtUp(0)
	}, soon, poll, "its leader is there")
	require.False(t, caughtUp(1), "its end is not known")

	headless.Remove()
	require.Eventually(t, func() bool {
		m.current.Load().session.on.RecordProgress()
		return caughtUp(0) && caughtUp(1)
	}, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 20, got.total())
}
