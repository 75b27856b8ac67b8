package kgoidem

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// This file runs whole runners on the real broker.

// everyProtocol runs a test for each protocol.
func everyProtocol(t *testing.T, test func(t *testing.T, protocol Protocol)) {
	t.Helper()
	t.Parallel() // all tests wait most of the time
	for _, protocol := range []Protocol{Cooperative, Eager, NextGeneration} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
}

// TestKafka_Memberships_K02: no event is handled or delivered twice while members join and leave.
func TestKafka_Memberships_K02(t *testing.T) {
	everyProtocol(t, func(t *testing.T, protocol Protocol) {
		for _, static := range []bool{false, true} {
			t.Run(fmt.Sprint("static=", static), func(t *testing.T) {
				t.Parallel()
				brokers, topic, cfg := onKafka(t, 6)
				cfg.Protocol = protocol
				threeMembers(t, brokers, topic, cfg, static)
			})
		}
	})
}

// TestKafka_GracefulStop_K03: after a stop in order no record is delivered again.
func TestKafka_GracefulStop_K03(t *testing.T) {
	everyProtocol(t, func(t *testing.T, protocol Protocol) {
		brokers, topic, cfg := onKafka(t, 4)
		cfg.Protocol, cfg.CommitInterval, cfg.Store = protocol, time.Hour, forever()
		again := new(duplicates)
		cfg.Observers = []observe.Observer{again}
		produceEvents(t, brokers, topic, 0, 1000)
		var got tally
		m := start(t, cfg, routed(got.handle))
		require.Eventually(t, func() bool { return got.events() == 1000 }, soon, poll)
		require.NoError(t, m.Ready())
		require.NoError(t, m.end())

		produceEvents(t, brokers, topic, 1000, 1010)
		m = start(t, cfg, routed(got.handle))
		require.Eventually(t, func() bool { return got.events() == 1010 }, soon, poll)
		require.NoError(t, m.end())
		require.Equal(t, 1010, got.total())
		require.Empty(t, again.seen(), "delivered again after a stop in order")
	})
}

// TestKafka_StopUnderLoad_K03: a stop while handlers run commits all of their events and begins no
// other.
func TestKafka_StopUnderLoad_K03(t *testing.T) {
	everyProtocol(t, func(t *testing.T, protocol Protocol) {
		brokers, topic, cfg := onKafka(t, 4)
		cfg.Protocol, cfg.Store = protocol, forever()
		again := new(duplicates)
		cfg.Observers = []observe.Observer{again}
		produceEvents(t, brokers, topic, 0, 600)
		var got tally
		slow := func(ctx context.Context, m *idem.Message) error {
			got.add(eventID(m))
			return runner.Pause(ctx, 20*time.Millisecond)
		}
		for got.events() < 600 {
			m := start(t, cfg, routed(slow))
			have := got.events()
			require.Eventually(t, func() bool { return got.events() >= min(have+200, 600) }, soon, poll)
			require.NoError(t, m.end())
		}
		require.Equal(t, 600, got.total())
		require.Empty(t, again.seen())
	})
}

// TestKafka_RebalanceUnderLoad_K03: members come and go while handlers run. Running handlers finish
// and are committed before their partition moves, so no record is delivered again.
func TestKafka_RebalanceUnderLoad_K03(t *testing.T) {
	everyProtocol(t, func(t *testing.T, protocol Protocol) {
		brokers, topic, cfg := onKafka(t, 6)
		cfg.Protocol, cfg.Store = protocol, forever()
		again := new(duplicates)
		cfg.Observers = []observe.Observer{again}
		produceEvents(t, brokers, topic, 0, 1500)
		var got tally
		slow := func(ctx context.Context, m *idem.Message) error {
			got.add(eventID(m))
			if strings.HasSuffix(eventID(m), "77") { // longer than a rebalance without it
				return runner.Pause(ctx, 2*time.Second)
			}
			return runner.Pause(ctx, 30*time.Millisecond)
		}
		steady := start(t, cfg, routed(slow))
		require.Eventually(t, func() bool { return got.events() > 50 }, soon, poll)
		for got.events() < 1200 {
			guest := start(t, cfg, routed(slow))
			have := got.events()
			require.Eventually(t, func() bool {
				return guest.claims() > 0 && got.events() > have+100 || got.events() > 1400
			}, soon, poll)
			require.NoError(t, guest.end())
		}
		require.Eventually(t, func() bool { return got.events() == 1500 }, soon, poll)
		require.NoError(t, steady.end())
		require.Equal(t, 1500, got.total())
		require.Empty(t, again.seen())
		sum, _ := committed(t, brokers, cfg.Group, topic)
		require.EqualValues(t, 1500, sum)
	})
}

// gaps collects gap events.
type gaps struct {
	mu  sync.Mutex
	all []observe.GapEvent
}

func (g *gaps) ObserveGap(_ context.Context, e observe.GapEvent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = append(g.all, e)
}

func (g *gaps) seen() []observe.GapEvent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]observe.GapEvent(nil), g.all...)
}

// cutLog deletes the records of partition 0 before an offset.
func cutLog(t *testing.T, brokers []string, topic string, before int64) {
	t.Helper()
	offsets := make(kadm.Offsets)
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: before})
	_, err := kadm.NewClient(clientOf(t, brokers)).DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
}

// TestKafka_Gap_K17 deletes records that were not consumed: 1,000 written, 100 consumed, the log
// cut at 500.
func TestKafka_Gap_K17(t *testing.T) {
	for policy, first := range map[runner.GapPolicy]int64{
		runner.FailOnGap: -1, runner.EarliestOnGap: 500, runner.LatestOnGap: 1000,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			brokers, topic, cfg := onKafka(t, 1)
			seen := new(gaps)
			cfg.OnGap, cfg.Observers = policy, []observe.Observer{seen}
			produceEvents(t, brokers, topic, 0, 100)
			var got tally
			m := start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return got.events() == 100 }, soon, poll)
			require.NoError(t, m.end())
			produceEvents(t, brokers, topic, 100, 1000)
			cutLog(t, brokers, topic, 500)

			var begin atomic.Int64
			begin.Store(-1)
			m = start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
				begin.CompareAndSwap(-1, m.Offset)
				got.add(eventID(m))
				return nil
			}))
			if policy == runner.FailOnGap {
				err := m.wait(t, soon)
				var gap *runner.GapError
				require.ErrorAs(t, err, &gap)
				require.Equal(t, runner.GapError{Topic: topic, Committed: 100, Oldest: 500, Newest: 1000}, *gap)
				require.Equal(t, 100, got.events())
				return
			}
			require.Eventually(t, func() bool {
				sum, _ := committed(t, brokers, cfg.Group, topic)
				return sum >= first
			}, soon, 200*time.Millisecond, "the chosen offset is committed without an event")
			if policy == runner.LatestOnGap {
				produceEvents(t, brokers, topic, 1000, 1001)
			}
			require.Eventually(t, func() bool { return begin.Load() >= 0 }, soon, poll)
			require.Equal(t, first, begin.Load())
			require.NoError(t, m.end())
			require.Len(t, seen.seen(), 1)
			require.EqualValues(t, 100, seen.seen()[0].Committed)
		})
	}
}

// TestKafka_GapWhileRunning_K16: the log is cut above the position of a running member, which waits
// for its handler. franz-go finds its next offset gone and the runner joins anew.
func TestKafka_GapWhileRunning_K16(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 1)
	cfg.OnGap = runner.EarliestOnGap
	cfg.QueueBytes = 1 // the least
	seen := new(gaps)
	cfg.Observers = []observe.Observer{seen}
	big := make([]byte, 20<<10)
	cl := clientOf(t, brokers)
	const events = 1500 // 30 MB: far more than the client fetches ahead
	for i := range events {
		r := record(topic, i)
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "big", Value: big})
		cl.Produce(t.Context(), r, nil)
	}
	require.NoError(t, cl.Flush(t.Context()))
	hold := make(chan struct{})
	var got tally
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		if got.add(eventID(m)); got.events() == 1 {
			<-hold
		}
		return nil
	}))
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	cutLog(t, brokers, topic, events-10)
	close(hold)
	require.Eventually(t, func() bool {
		sum, _ := committed(t, brokers, cfg.Group, topic)
		return sum == events
	}, soon, 200*time.Millisecond)
	require.NoError(t, m.end())
	require.NotEmpty(t, seen.seen())
}

// TestKafka_LostOffsets_K19: the store knows a position, and the group has no offset.
func TestKafka_LostOffsets_K19(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 1)
	store := newRecalling()
	cfg.Store = store
	produceEvents(t, brokers, topic, 0, 10)
	require.NoError(t, store.RecordProgress(t.Context(), cfg.Group, []dedup.Progress{
		{Topic: topic, Next: 7, Time: time.Now()},
	}))
	var got tally
	var lost *runner.OffsetsLostError
	require.ErrorAs(t, start(t, cfg, routed(got.handle)).wait(t, soon), &lost)
	require.Equal(t, 0, got.events())
	cfg.OnLostOffsets = runner.ResumeLost
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 3 }, soon, poll)
	require.NoError(t, m.end())
}

// progressInterval is how often a runner records progress, which looks for markers too.
const progressInterval = 10 * time.Second

// TestKafka_Transactions_K30: aborted records are not handled, and the markers behind the last
// record are committed, so that their deletion is no gap (K-17).
func TestKafka_Transactions_K30(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 1)
	store := newRecalling()
	cfg.Store = store
	producer := clientOf(t, brokers, kgo.TransactionalID("tx-"+topic))
	send := func(from, to int, end kgo.TransactionEndTry) {
		require.NoError(t, producer.BeginTransaction())
		for i := from; i < to; i++ {
			require.NoError(t, producer.ProduceSync(t.Context(), record(topic, i)).FirstErr())
		}
		require.NoError(t, producer.EndTransaction(t.Context(), end))
	}
	send(0, 10, kgo.TryCommit)
	send(10, 20, kgo.TryAbort)
	send(20, 30, kgo.TryCommit)
	send(30, 35, kgo.TryAbort)
	var got tally
	m := start(t, cfg, routed(got.handle))
	const end = 35 + 4 // records and markers
	require.Eventually(t, func() bool {
		sum, _ := committed(t, brokers, cfg.Group, topic)
		return sum == end
	}, progressInterval/2, 100*time.Millisecond, "markers are committed before progress is recorded")
	require.Equal(t, 20, got.events())

	m.current.Load().session.on.RecordProgress()
	require.True(t, store.of(topic, 0).CaughtUp)
	require.EqualValues(t, end, store.of(topic, 0).Next)
	// An open transaction holds the end of the visible log: the partition is not caught up.
	require.NoError(t, producer.BeginTransaction())
	require.NoError(t, producer.ProduceSync(t.Context(), record(topic, 40)).FirstErr())
	open, claim := partition{Topic: topic}, map[string][]int32{topic: {0}}
	newest, err := m.offsets.Newest(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, map[partition]int64{open: end + 1}, newest)
	visible, err := m.offsets.Ends(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, map[partition]int64{open: end}, visible)
	m.current.Load().session.on.RecordProgress()
	require.False(t, store.of(topic, 0).CaughtUp)
	require.NoError(t, producer.EndTransaction(t.Context(), kgo.TryCommit))
	require.Eventually(t, func() bool { return got.events() == 21 }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 21, got.total())
}

// TestKafka_DelayedRetry_T05: a failed event runs again after its delay, while the member stays in
// the group and the partition goes on.
func TestKafka_DelayedRetry_T05(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 2)
	produceEvents(t, brokers, topic, 0, 20)
	var got tally
	var first, second atomic.Int64
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		n := got.add(eventID(m))
		if eventID(m) == "3" {
			if n == 1 {
				first.Store(time.Now().UnixMilli())
				return errTest
			}
			second.Store(time.Now().UnixMilli())
		}
		return nil
	}, idem.RetryTopics(2*time.Second), idem.Retry(idem.RetryPolicy{MaxAttempts: 1})))
	require.Eventually(t, func() bool { return got.total() == 21 }, soon, poll)
	require.NoError(t, m.end()) // and with it the second run
	require.GreaterOrEqual(t, second.Load()-first.Load(), int64(1900))
	require.Equal(t, 20, got.events())
}

// TestKafka_LostSession_K11: a member that the group has forgotten cancels its handlers at once and
// commits no offset.
func TestKafka_LostSession_K11(t *testing.T) {
	everyProtocol(t, func(t *testing.T, protocol Protocol) {
		brokers, topic, cfg := onKafka(t, 1)
		cfg.Store, cfg.Protocol = forever(), protocol
		seen := new(rebalances)
		cfg.Observers = []observe.Observer{seen}
		produceEvents(t, brokers, topic, 0, 5)
		var got tally
		cause := make(chan error, 1)
		m := start(t, cfg, routed(func(ctx context.Context, m *idem.Message) error {
			if got.add(eventID(m)); got.total() == 1 {
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return context.Cause(ctx)
			}
			return nil
		}))
		require.Eventually(t, func() bool { return got.total() == 1 }, soon, poll)
		id, _ := m.current.Load().cl.GroupMetadata()
		expel(t, brokers, cfg, id)
		select {
		case err := <-cause:
			require.ErrorIs(t, err, idem.ErrPartitionLost)
		case <-time.After(soon):
			t.Fatal("the handler is not cancelled")
		}
		require.Eventually(t, func() bool { return got.events() == 5 }, soon, poll)
		require.NoError(t, m.end())
		require.Contains(t, seen.kinds(), observe.Lost)
		sum, _ := committed(t, brokers, cfg.Group, topic)
		require.EqualValues(t, 5, sum)
	})
}

// rebalances collects the kinds of rebalance events.
type rebalances struct {
	mu  sync.Mutex
	all []observe.RebalanceKind
}

func (r *rebalances) ObserveRebalance(_ context.Context, e observe.RebalanceEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e.Kind)
}

func (r *rebalances) kinds() []observe.RebalanceKind {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]observe.RebalanceKind(nil), r.all...)
}

// expel removes a member from the group, as the brokers do when its time is out.
func expel(t *testing.T, brokers []string, cfg Config, id string) {
	t.Helper()
	cl := clientOf(t, brokers)
	if cfg.Protocol == NextGeneration {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch = cfg.Group, id, -1
		answer, err := req.RequestWith(t.Context(), cl)
		require.NoError(t, err)
		require.Zero(t, answer.ErrorCode)
		return
	}
	leave, who := kmsg.NewPtrLeaveGroupRequest(), kmsg.NewLeaveGroupRequestMember()
	who.MemberID = id
	leave.Group, leave.MemberID, leave.Members = cfg.Group, id, append(leave.Members, who)
	_, err := leave.RequestWith(t.Context(), cl)
	require.NoError(t, err)
}

// TestKafka_Fenced_K25: a second process with the same InstanceID ends the first.
func TestKafka_Fenced_K25(t *testing.T) {
	_, _, cfg := onKafka(t, 1)
	cfg.InstanceID = "pod-0"
	var got tally
	first := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return first.Ready() == nil }, soon, poll)
	second := start(t, cfg, routed(got.handle))
	require.ErrorIs(t, first.wait(t, soon), runner.ErrFenced)
	require.Eventually(t, func() bool { return second.Ready() == nil }, soon, poll)
	require.NoError(t, second.end())
}

// TestKafka_MissingTopic_K36: Run ends, and names the command that creates the topic.
func TestKafka_MissingTopic_K36(t *testing.T) {
	_, topic, cfg := onKafka(t, 1)
	cfg.Topics = []string{topic, topic + "-missing"}
	var missing *runner.TopicError
	require.ErrorAs(t, start(t, cfg, routed(new(tally).handle)).wait(t, soon), &missing)
	require.Equal(t, []string{topic + "-missing"}, missing.Topics)
	require.Contains(t, missing.Fix, "kafka-topics")
}
