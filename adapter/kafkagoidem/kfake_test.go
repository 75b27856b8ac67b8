package kafkagoidem

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// TestRun is the simplest run: one partition, one handler.
func TestRun(t *testing.T) {
	brokers, topic, cfg := onFake(t, 1)
	produceEvents(t, brokers, topic, 0, 10)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.NoError(t, m.Ready())
	require.NoError(t, m.Live())
	require.NoError(t, m.end())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, 10, sum)
	require.Error(t, m.Ready())
	require.Error(t, m.Live())
	require.ErrorIs(t, m.Run(t.Context()), ErrRunTwice)
}

// TestMemberships runs three members through joins and stops.
func TestMemberships(t *testing.T) {
	brokers, topic, cfg := onFake(t, 6)
	threeMembers(t, brokers, topic, cfg)
}

// threeMembers starts three members one after the other while events come, and stops them. No event
// is handled twice, and no record is delivered again. One event becomes a dead letter.
func threeMembers(t *testing.T, brokers []string, topic string, cfg Config) {
	cfg.Store, cfg.Grace = forever(), 5*time.Second
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	var got tally
	handle := func(ctx context.Context, m *idem.Message) error {
		if eventID(m) == "7" {
			return idem.Permanent(errTest)
		}
		got.add(eventID(m))
		return runner.Pause(ctx, 5*time.Millisecond)
	}
	produceEvents(t, brokers, topic, 0, 600)
	var members []*running
	for range 3 {
		members = append(members, start(t, cfg, routed(handle)))
		require.Eventually(t, func() bool {
			for _, m := range members {
				if m.Ready() != nil || m.claims() != 6/len(members) {
					return false
				}
			}
			return true
		}, soon, poll)
	}
	produceEvents(t, brokers, topic, 600, 700)
	require.Eventually(t, func() bool { return got.events() == 699 }, soon, poll)
	letter := readAll(t, brokers, topic+"."+cfg.Group+".dlq", 1)[0]
	require.Equal(t, "permanent", header(letter, deadletter.HeaderErrorClass))
	for _, m := range members {
		require.NoError(t, m.end())
	}
	require.Equal(t, 699, got.total())
	require.Empty(t, again.seen())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, 700, sum)
}

// TestDuplicates: copies of an event have one effect.
func TestDuplicates(t *testing.T) {
	brokers, topic, cfg := onFake(t, 2)
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	for range 3 {
		produceEvents(t, brokers, topic, 0, 20)
	}
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return len(again.seen()) == 40 }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 20, got.events())
	require.Equal(t, 20, got.total())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, 60, sum)
}

// TestStop_K03: a stop while handlers run commits all of their events and begins no other.
func TestStop_K03(t *testing.T) {
	brokers, topic, cfg := onFake(t, 4)
	stopUnderLoad(t, brokers, topic, cfg)
}

func stopUnderLoad(t *testing.T, brokers []string, topic string, cfg Config) {
	cfg.Store, cfg.CommitInterval = forever(), time.Hour
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	produceEvents(t, brokers, topic, 0, 300)
	var got tally
	slow := func(ctx context.Context, m *idem.Message) error {
		got.add(eventID(m))
		return runner.Pause(ctx, 20*time.Millisecond)
	}
	for got.events() < 300 {
		m := start(t, cfg, routed(slow))
		have := got.events()
		require.Eventually(t, func() bool { return got.events() >= min(have+100, 300) }, soon, poll)
		require.NoError(t, m.end())
	}
	require.Equal(t, 300, got.total())
	require.Empty(t, again.seen())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, 300, sum)
}

// TestRetryTopic: a delayed retry runs from the copy in the retry topic.
func TestRetryTopic(t *testing.T) {
	brokers, topic, cfg := onFake(t, 1)
	produceEvents(t, brokers, topic, 0, 3)
	var got tally
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		if got.add(eventID(m)) == 1 && eventID(m) == "1" {
			return errTest
		}
		return nil
	}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Second)))
	require.Eventually(t, func() bool { return got.total() == 4 }, soon, poll)
	require.NoError(t, m.end())
	require.Equal(t, 3, got.events())
}

// TestLost_K11: a member that the group has removed ends its handlers at once, with the cause, and
// commits no offset. It joins again.
func TestLost_K11(t *testing.T) {
	brokers, topic, cfg := onFake(t, 1)
	lost(t, brokers, topic, cfg)
}

func lost(t *testing.T, brokers []string, topic string, cfg Config) {
	produceEvents(t, brokers, topic, 0, 1)
	causes := make(chan error, 1)
	var got tally
	m := start(t, cfg, routed(func(ctx context.Context, m *idem.Message) error {
		if got.add(eventID(m)) > 1 {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	}))
	require.Eventually(t, func() bool { return got.total() == 1 }, soon, poll)
	remove(t, brokers, cfg.Group)
	select {
	case cause := <-causes:
		require.ErrorIs(t, cause, idem.ErrPartitionLost)
	case <-time.After(8 * time.Second): // less than the grace
		t.Fatal("the handler goes on without the partition")
	}
	require.Eventually(t, func() bool { return got.total() == 2 }, soon, poll)
	require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
	require.NoError(t, m.end())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, 1, sum)
}

// remove removes all members of a group.
func remove(t *testing.T, brokers []string, group string) {
	t.Helper()
	cl := clientOf(t, brokers)
	described, err := kadm.NewClient(cl).DescribeGroups(t.Context(), group)
	require.NoError(t, err)
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	for _, m := range described[group].Members {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = m.MemberID
		req.Members = append(req.Members, one)
	}
	require.NotEmpty(t, req.Members)
	answer, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(answer.ErrorCode))
}

// TestGap_K17: the log is cut above the committed offset.
func TestGap_K17(t *testing.T) {
	for policy, first := range map[runner.GapPolicy]int64{
		runner.FailOnGap: -1, runner.EarliestOnGap: 50, runner.LatestOnGap: 100,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			brokers, topic, cfg := onFake(t, 1)
			gap(t, brokers, topic, cfg, policy, first)
		})
	}
}

func gap(t *testing.T, brokers []string, topic string, cfg Config, policy runner.GapPolicy, first int64) {
	cfg.OnGap, cfg.Store = policy, forever()
	produceEvents(t, brokers, topic, 0, 10)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.NoError(t, m.end())
	produceEvents(t, brokers, topic, 10, 100)
	cut := make(kadm.Offsets)
	cut.Add(kadm.Offset{Topic: topic, Partition: 0, At: 50})
	_, err := kadm.NewClient(clientOf(t, brokers)).DeleteRecords(t.Context(), cut)
	require.NoError(t, err)

	offsets := make(chan int64, 200)
	m = start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		offsets <- m.Offset
		return nil
	}))
	if policy == runner.FailOnGap {
		var gap *runner.GapError
		require.ErrorAs(t, m.wait(t, soon), &gap)
		require.Equal(t, runner.GapError{Topic: topic, Committed: 10, Oldest: 50, Newest: 100}, *gap)
		require.Empty(t, offsets)
		return
	}
	require.Eventually(t, func() bool {
		sum, _ := committed(t, brokers, cfg.Group, topic)
		return sum >= first
	}, soon, 200*time.Millisecond, "the chosen offset is committed without an event")
	if policy == runner.LatestOnGap {
		produceEvents(t, brokers, topic, 100, 101)
	}
	select {
	case begin := <-offsets:
		require.Equal(t, first, begin)
	case <-time.After(soon):
		t.Fatal("no event arrives")
	}
	require.NoError(t, m.end())
}

// TestNotCommitted: a stop without an answer to the last commit is an error.
func TestNotCommitted(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg := configFor(cluster.ListenAddrs(), "orders")
	produceEvents(t, cfg.Brokers, "orders", 0, 10)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		commit, ok := req.(*kmsg.OffsetCommitRequest)
		if !ok {
			return nil, nil, false
		}
		resp, _ := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range commit.Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitResponseTopicPartition{
					Partition: p.Partition, ErrorCode: kerr.NotEnoughReplicas.Code,
				})
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.ErrorIs(t, m.end(), runner.ErrNotCommitted)
}

// TestMissingTopic: a missing topic ends the start, and the error has the command that creates it.
func TestMissingTopic(t *testing.T) {
	_, _, cfg := onFake(t, 1)
	cfg.Topics = []string{"absent"}
	var missing *runner.TopicError
	require.ErrorAs(t, start(t, cfg, routed(new(tally).handle)).wait(t, soon), &missing)
	require.Equal(t, []string{"absent"}, missing.Topics)
	require.Contains(t, missing.Fix, "kafka-topics")
}
