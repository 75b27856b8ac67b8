package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/runner"
)

// recalling is a store that tells of progress.
type recalling struct {
	*told
	down bool
}

func (s *recalling) Progress(_ context.Context, scope string, topics ...string) (all []dedup.Progress, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		s.down = false
		return nil, dedup.ErrUnavailable
	}
	for at, p := range s.progress {
		if slices.Contains(topics, p.Topic) && at.Topic == scope+"/"+p.Topic {
			all = append(all, p)
		}
	}
	return all, nil
}

// TestKfake_LostOffsets_K19: the group's offsets are gone, the log is not, and the store knows how
// far the scope was. No partition begins before a person has chosen. Then the choice is carried
// out.
func TestKfake_LostOffsets_K19(t *testing.T) {
	t.Parallel()
	for policy, want := range map[LostOffsetsPolicy]int{RefuseLost: 0, ResumeLost: 6, StartLost: 20} {
		t.Run(policy.String(), func(t *testing.T) {
			brokers := fakeBrokers(t, 2, "orders", "orders.g2.dlq")
			produceEvents(t, brokers, "orders", 0, 20)
			store := &recalling{told: newTold()}
			var sizes [2]int64
			for _, m := range readAll(t, brokers, "orders", 20) {
				sizes[m.Partition]++
			}
			// Three of each were not consumed.
			require.NoError(t, store.RecordProgress(t.Context(), "g2", []dedup.Progress{
				{Topic: "orders", Partition: 0, Next: sizes[0] - 3}, {Topic: "orders", Partition: 1, Next: sizes[1] - 3},
			}))
			store.down = policy == ResumeLost // a store that is down is waited for
			var got tally
			m := start(t, Config{
				Brokers: brokers, Group: "g2", Topics: []string{"orders"}, Store: store, OnLostOffsets: policy,
			}, routed(got.handle))
			if policy == RefuseLost {
				var lost *OffsetsLostError
				require.ErrorAs(t, m.wait(t, soon), &lost)
				require.Len(t, lost.Known, 2)
				require.ErrorContains(t, lost, fmt.Sprintf("orders/0 at %d orders/1 at %d", sizes[0]-3, sizes[1]-3))
				require.Zero(t, got.total())
				return
			}
			require.Eventually(t, func() bool { return m.Ready() == nil && got.total() == want }, soon, poll)
			require.Eventually(t, func() bool {
				offsets := committed(t, brokers, "g2", "orders", 0, 1)
				return offsets[0] == sizes[0] && offsets[1] == sizes[1]
			}, soon, poll)
			require.NoError(t, m.end())
			require.Equal(t, want, got.total())
		})
	}
}

// TestKfake_NoCommitSucceeded_K19: the group has no committed offset, and no commit succeeds before
// the stop. The store gets no position, so the next start handles the records again and is not
// refused.
func TestKfake_NoCommitSucceeded_K19(t *testing.T) {
	t.Parallel()
	cluster := oneBroker(t)
	brokers := cluster.ListenAddrs()
	produceEvents(t, brokers, "orders", 0, 10)
	var refuses atomic.Bool
	refuses.Store(true)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		commit, ok := req.(*kmsg.OffsetCommitRequest)
		if !ok || !refuses.Load() {
			return nil, nil, false
		}
		resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, topic := range commit.Topics {
			answer := kmsg.NewOffsetCommitResponseTopic()
			answer.Topic = topic.Topic
			for _, p := range topic.Partitions {
				refused := kmsg.NewOffsetCommitResponseTopicPartition()
				refused.Partition, refused.ErrorCode = p.Partition, kerr.NotEnoughReplicas.Code
				answer.Partitions = append(answer.Partitions, refused)
			}
			resp.Topics = append(resp.Topics, answer)
		}
		return resp, nil, true
	})
	store := &recalling{told: newTold()}
	var got tally
	cfg := Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Store: store}
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.total() == 10 }, soon, poll)
	require.Eventually(t, func() bool { return m.count("committing offsets fails") > 0 }, soon, poll)
	m.handler.anySession().RecordProgress() // as it does every ten seconds
	require.ErrorIs(t, m.end(), runner.ErrNotCommitted)
	for p, at := range store.progress {
		require.Zero(t, at.Next, p)
	}

	refuses.Store(false)
	m = start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool {
		return committed(t, brokers, "g", "orders", 0)[0] == 10
	}, soon, poll)
	m.handler.anySession().RecordProgress()
	require.NoError(t, m.end())
	require.Equal(t, 10, got.total())
	require.EqualValues(t, 10, store.progress[runner.TopicPartition{Topic: "g/orders"}].Next)
}

// TestKfake_ShortSessions_K18: after an error that ends every session at once, the consumer tries
// ever more slowly, and logs the error once.
func TestKfake_ShortSessions_K18(t *testing.T) {
	t.Parallel()
	brokers := fakeBrokers(t, 1, "orders", "orders.g.dlq")
	store := &deaf{told: newTold()}
	m := start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Store: store}, routed(nothing))
	require.Eventually(t, func() bool { return store.calls.Load() >= 2 }, soon, poll)
	_ = pause(t.Context(), 5*time.Second)
	require.LessOrEqual(t, store.calls.Load(), int64(7))
	require.Equal(t, 1, m.count("cannot consume"))
	require.NoError(t, m.Live(), "a restart would not help")
	require.NoError(t, m.end())
}

// deaf is a store that never tells of progress.
type deaf struct {
	*told
	calls atomic.Int64
}

func (s *deaf) Progress(context.Context, string, ...string) ([]dedup.Progress, error) {
	s.calls.Add(1)
	return nil, dedup.ErrUnavailable
}

// K-19: a member with assigned partitions got no record. Its next start loses no record, and is not
// refused. With Newest the member has committed where it began, and with Oldest nothing.
func TestKfake_NothingWasCommitted_K19(t *testing.T) {
	brokers := fakeBrokers(t, 2, "orders", "orders.g2.dlq")
	produceEvents(t, brokers, "orders", 0, 20)
	ends := make(map[int32]int64)
	for _, m := range readAll(t, brokers, "orders", 20) {
		ends[m.Partition]++
	}
	store := &recalling{told: newTold()}
	cfg := Config{Brokers: brokers, Group: "g2", Topics: []string{"orders"}, Store: store, Start: Newest}
	for range 2 {
		m := start(t, cfg, routed(nothing))
		require.Eventually(t, func() bool { return m.Ready() == nil && claimsOf(m) == 2 }, soon, poll)
		s := m.handler.anySession()
		require.Eventually(t, func() bool {
			for _, c := range s.Assignments() {
				if c.Claim().HighWaterMarkOffset() == 0 {
					return false
				}
			}
			return true
		}, soon, poll)
		s.RecordProgress() // as it does every ten seconds
		require.NoError(t, m.end())
		require.Equal(t, ends, committed(t, brokers, "g2", "orders", 0, 1))
	}
}

// TestKfake_NewestLosesNoRecord_K29: with Newest, a partition has its first assignment while it is
// idle. The records that are written until the next start run.
func TestKfake_NewestLosesNoRecord_K29(t *testing.T) {
	t.Parallel()
	for _, cooperative := range []bool{false, true} {
		brokers := fakeBrokers(t, 1, "orders", "orders.g.dlq")
		produceEvents(t, brokers, "orders", 0, 20)
		var got tally
		cfg := Config{
			Brokers: brokers, Group: "g", Topics: []string{"orders"}, Start: Newest, Cooperative: cooperative,
		}
		m := start(t, cfg, routed(got.handle))
		require.Eventually(t, func() bool { return m.Ready() == nil && claimsOf(m) == 1 }, soon, poll)
		require.NoError(t, m.end())
		produceEvents(t, brokers, "orders", 20, 21)
		m = start(t, cfg, routed(got.handle))
		require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
		require.NoError(t, m.end())
		require.Equal(t, 1, got.total())
	}
}

// TestKfake_CommitsNoEpoch_K32: the commit where retry topics begin names no epoch of a leader. Other
// clients would take epoch 0 for a sign that the log was cut.
func TestKfake_CommitsNoEpoch_K32(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders", "orders.g.retry", "orders.g.dlq"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var mu sync.Mutex
	epochs := make(map[string][]int32)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range topic.Partitions {
				epochs[topic.Topic] = append(epochs[topic.Topic], p.LeaderEpoch)
			}
		}
		return nil, nil, false
	})
	cfg := Config{Brokers: cluster.ListenAddrs(), Group: "g", Topics: []string{"orders"}, Start: Newest}
	m := start(t, cfg, routed(nothing))
	require.Eventually(t, func() bool { return m.Ready() == nil && claimsOf(m) == 1 }, soon, poll)
	require.NoError(t, m.end())
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, epochs, "orders.g.retry")
	for topic, of := range epochs {
		for _, epoch := range of {
			require.EqualValues(t, noEpoch, epoch, topic)
		}
	}
}

// TestMoveOffsets_K29: a session does not begin at offsets that the coordinator refuses, such as
// those of a process that is no member.
func TestMoveOffsets_K29(t *testing.T) {
	t.Parallel()
	brokers := fakeBrokers(t, 1, "orders", "orders.g.dlq")
	cfg := Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Start: Newest}
	m := start(t, cfg, routed(nothing))
	require.Eventually(t, func() bool { return m.Ready() == nil && claimsOf(m) == 1 }, soon, poll)
	require.Equal(t, map[int32]int64{0: 0}, committed(t, brokers, "g", "orders", 0))
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	sess := newFakeSession(t.Context(), map[string][]int32{"orders": {0}})
	moves := []runner.Move{{TopicPartition: runner.TopicPartition{Topic: "orders"}, From: -1, To: 3}}
	err = moveOffsets(sess, newDirectCommits("g", client), moves)
	require.True(t, classOf(err).Lost(), err)
	require.ErrorContains(t, err, "orders/0")
	require.Empty(t, sess.marks)
	require.NoError(t, m.end())
}

// TestKfake_AddedPartition_K29: a cooperative rebalance adds a new partition to a session. With
// Newest the partition begins with a committed offset too, and a later record is not skipped.
func TestKfake_AddedPartition_K29(t *testing.T) {
	t.Parallel()
	brokers := fakeBrokers(t, 1, "orders", "orders.g.dlq")
	var got tally
	cfg := Config{
		Brokers: brokers, Group: "g", Topics: []string{"orders"}, Start: Newest, Cooperative: true,
		Sarama: func(sc *sarama.Config) {
			quick(sc)
			sc.Metadata.RefreshFrequency = time.Second // new partitions are noticed then
		},
	}
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return m.Ready() == nil && claimsOf(m) == 1 }, soon, poll)
	require.NoError(t, testenv.KafkaAdmin(t, brokers).CreatePartitions("orders", 2, nil, false))
	require.Eventually(t, func() bool { return m.Ready() == nil && claimsOf(m) == 2 }, soon, poll)
	require.Eventually(t, func() bool {
		return committed(t, brokers, "g", "orders", 1)[1] == 0
	}, soon, poll)
	require.NoError(t, m.end())
	r := record("orders", 7)
	r.Metadata = toPartition(1)
	produce(t, brokers, r)
	m = start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	require.NoError(t, m.end())
}

// TestKfake_AddedPartitionIsChecked_K19: which partitions may begin in a session that was not
// prepared for them.
func TestKfake_AddedPartitionIsChecked_K19(t *testing.T) {
	t.Parallel()
	brokers := fakeBrokers(t, 3, "orders", "others", "others.g.dlq")
	for id := range int32(3) {
		r := record("orders", int(id))
		r.Metadata = toPartition(id)
		produce(t, brokers, r)
	}
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	produceEvents(t, brokers, "others", 0, 1)
	var got tally
	m := start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"others"}}, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	require.NoError(t, m.end()) // the brokers know the group
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		start     StartPosition
		lost      LostOffsetsPolicy
		partition int32
		from      int64
		ctx       context.Context
		begins    bool
	}{
		"prepared":               {Newest, RefuseLost, 0, -1, t.Context(), true},
		"committed":              {Newest, RefuseLost, 1, 5, t.Context(), true},
		"newest":                 {Newest, StartLost, 1, -1, t.Context(), false},
		"oldest, lost, refused":  {Oldest, RefuseLost, 1, -2, t.Context(), false},
		"oldest, lost, resumed":  {Oldest, ResumeLost, 1, -2, t.Context(), false},
		"oldest, lost, accepted": {Oldest, StartLost, 1, -2, t.Context(), true},
		"oldest, not lost":       {Oldest, RefuseLost, 2, -2, t.Context(), true},
		"the session has ended":  {Oldest, RefuseLost, 1, -2, ended, true},
	} {
		store := &recalling{told: newTold()}
		require.NoError(t, store.RecordProgress(t.Context(), "g", []dedup.Progress{{Topic: "orders", Partition: 1, Next: 1}}))
		consumer, err := New(Config{
			Brokers: brokers, Group: "g", Topics: []string{"orders"}, Store: store,
			Start: c.start, OnLostOffsets: c.lost, Logger: quiet,
		}, routed(nothing))
		require.NoError(t, err)
		h := consumer.handler
		h.added = consumer.checking(runner.NewOffsetCheck(consumer.cfg.neutral(), logOffsets{client}, []dedup.Store{store}))
		claim := &endless{newFakeClaim("orders", c.partition, 0), c.from, 0}
		require.Equal(t, c.begins, h.mayBegin(c.ctx, map[string][]int32{"orders": {0}}, claim), name)
		require.NoError(t, h.Close())
	}
}

// TestKfake_TopicMadeAnew_K19: the store knows more than the log holds, as the topic was deleted
// and made again. That is no loss of offsets.
func TestKfake_TopicMadeAnew_K19(t *testing.T) {
	brokers := fakeBrokers(t, 1, "orders", "orders.g2.dlq")
	produceEvents(t, brokers, "orders", 0, 20)
	store := &recalling{told: newTold()}
	require.NoError(t, store.RecordProgress(t.Context(), "g2", []dedup.Progress{{Topic: "orders", Partition: 0, Next: 1000}}))
	var got tally
	m := start(t, Config{Brokers: brokers, Group: "g2", Topics: []string{"orders"}, Store: store}, routed(got.handle))
	require.Eventually(t, func() bool { return got.total() == 20 }, soon, poll)
	require.NoError(t, m.end())
	require.Contains(t, m.String(), "made anew")
}

// TestKafka_BeginRetries_K29: sarama reads the offsets of a session before Setup. Another member
// may have committed the beginnings since, and the session begins there all the same.
func TestKafka_BeginRetries_K29(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 2)
	retries := deadletter.RetryTopic(topic, cfg.Group, 0)
	createTopic(t, brokers, retries, 2)
	sc := testenv.KafkaConfig()
	sc.Consumer.Offsets.AutoCommit.Enable = false
	client, err := sarama.NewClient(brokers, sc)
	require.NoError(t, err)
	defer client.Close()
	other, err := sarama.NewOffsetManagerFromClient(cfg.Group, client)
	require.NoError(t, err)
	for id, offset := range []int64{0, 7} {
		p, err := other.ManagePartition(retries, int32(id))
		require.NoError(t, err)
		p.MarkOffset(offset, "")
	}
	other.Commit()
	require.NoError(t, other.Close())
	sess := newFakeSession(t.Context(), map[string][]int32{topic: {0, 1}, retries: {0}})
	marks := make(map[runner.TopicPartition]int64)
	sess.marked = func(p runner.TopicPartition, offset int64) { marks[p] = offset }
	require.NoError(t, beginRetries(ledOffsets{logOffsets{client}, sess.Claims()}, cfg.Group, sess, []string{topic, retries}))
	require.Equal(t, map[runner.TopicPartition]int64{{Topic: retries, Partition: 0}: 0}, marks)
}
