package consumer

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// This file runs whole consumers on the real broker.

// onKafka returns the broker, a topic with room for dead letters, and a Config for it.
func onKafka(t *testing.T, partitions int32) (brokers []string, topic string, cfg Config) {
	t.Helper()
	brokers = testenv.Kafka(t)
	topic = testenv.CreateTopic(t, brokers, partitions)
	return brokers, topic, Config{
		Brokers: brokers, Group: "g-" + topic, Topics: []string{topic}, Sarama: quick,
		CreateDeadLetterTopics: &TopicSpec{}, Grace: 10 * time.Second,
	}
}

// TestKafka_GracefulStop_K03: after a stop in order no record is delivered again.
func TestKafka_GracefulStop_K03(t *testing.T) {
	t.Parallel()
	for _, cooperative := range []bool{false, true} {
		brokers, topic, cfg := onKafka(t, 4)
		cfg.Cooperative, cfg.CommitInterval, cfg.Store = cooperative, time.Hour, forever()
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
		require.Zero(t, again.total(), "delivered again after a stop in order")
	}
}

// TestKafka_StopUnderLoad_K03: a stop while handlers run commits all of their events and begins no
// other.
func TestKafka_StopUnderLoad_K03(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 4)
	cfg.Store = forever()
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	produceEvents(t, brokers, topic, 0, 1000)
	var got tally
	slow := func(ctx context.Context, m *idem.Message) error {
		got.add(eventID(m))
		return pause(ctx, 20*time.Millisecond)
	}
	for got.events() < 1000 {
		m := start(t, cfg, routed(slow))
		have := got.events()
		require.Eventually(t, func() bool { return got.events() >= min(have+250, 1000) }, soon, poll)
		require.NoError(t, m.end())
	}
	require.Equal(t, 1000, got.total())
	require.Zero(t, again.total())
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

// TestKafka_Gap_K17 deletes records that were not consumed: 1,000 written, 100 consumed, the log
// cut at 500.
func TestKafka_Gap_K17(t *testing.T) {
	t.Parallel()
	for policy, first := range map[GapPolicy]int64{FailOnGap: -1, EarliestOnGap: 500, LatestOnGap: 1000} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			brokers, topic, cfg := onKafka(t, 1)
			seen := new(gaps)
			cfg.OnGap, cfg.Observers = policy, []observe.Observer{seen}
			produceEvents(t, brokers, topic, 0, 100)
			var got tally
			m := start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return got.events() == 100 }, soon, poll)
			require.NoError(t, m.end())
			produceEvents(t, brokers, topic, 100, 1000)
			require.NoError(t, testenv.KafkaAdmin(t, brokers).DeleteRecords(topic, map[int32]int64{0: 500}))

			var start0 atomic.Int64
			start0.Store(-1)
			m = start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
				start0.CompareAndSwap(-1, m.Offset)
				got.add(eventID(m))
				return nil
			}))
			if policy == FailOnGap {
				err := m.wait(t, soon)
				var gap *GapError
				require.ErrorAs(t, err, &gap)
				require.Equal(t, GapError{Topic: topic, Partition: 0, Committed: 100, Oldest: 500, Newest: 1000}, *gap)
				require.EqualValues(t, 400, gap.Missing())
				require.ErrorContains(t, err, "400 offsets, 100 to 499")
				require.Equal(t, 100, got.events())
			} else {
				require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
				require.Eventually(t, func() bool { return committed(t, brokers, cfg.Group, topic, 0)[0] >= first }, soon, time.Second)
				if policy == LatestOnGap {
					produceEvents(t, brokers, topic, 1000, 1001)
				}
				require.Eventually(t, func() bool { return start0.Load() >= 0 }, soon, poll)
				require.Equal(t, first, start0.Load())
				require.NoError(t, m.end())
			}
			require.Len(t, seen.all, 1)
			require.Equal(t, policy.String(), seen.all[0].Policy)
			require.EqualValues(t, 400, seen.all[0].Missing())
		})
	}
}

// TestKafka_BeyondTheEnd_K28: the topic was deleted and created again.
func TestKafka_BeyondTheEnd_K28(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	cfg.OnGap = EarliestOnGap
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	om, err := sarama.NewOffsetManagerFromClient(cfg.Group, client)
	require.NoError(t, err)
	pom, err := om.ManagePartition(topic, 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the coordinator may not know a new topic yet
		pom.MarkOffset(5000, "")
		om.Commit()
		return committed(t, brokers, cfg.Group, topic, 0)[0] == 5000
	}, soon, poll)
	_ = pom.Close() // errors of tries that were repeated
	require.NoError(t, om.Close())

	produceEvents(t, brokers, topic, 0, 20)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	require.Contains(t, m.String(), "committed=5000")
	require.NoError(t, m.end())
	require.EqualValues(t, 20, committed(t, brokers, cfg.Group, topic, 0)[0])
}

// TestKafka_GapWhileRunning_K16: the log is cut beyond the position of a running consumer. It stops
// with the gap named, and does not spin.
func TestKafka_GapWhileRunning_K16(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	for i := 0; i < 5000; i += 100 { // small batches: a fetch returns a whole one, above any limit
		produceEvents(t, brokers, topic, i, i+100)
	}
	gate := make(chan struct{})
	var got tally
	cfg.Sarama = func(sc *sarama.Config) {
		quick(sc)
		sc.Consumer.Fetch.Default = 2000 // the position stays far behind
	}
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		got.add(eventID(m))
		<-gate
		return nil
	}))
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	require.NoError(t, testenv.KafkaAdmin(t, brokers).DeleteRecords(topic, map[int32]int64{0: 4000}))
	close(gate)
	var gap *GapError
	require.ErrorAs(t, m.wait(t, soon), &gap)
	require.EqualValues(t, 4000, gap.Oldest)
	require.EqualValues(t, got.events(), gap.Committed, "what was handled is committed")
}

// TestKafka_MissingTopic_K36: a misspelt topic is an error within seconds, and is not created.
func TestKafka_MissingTopic_K36(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	cfg.Topics = append(cfg.Topics, topic+"-mispelt", topic+"-also")
	began := time.Now()
	m := start(t, cfg, routed(func(context.Context, *idem.Message) error { return nil }))
	err := m.wait(t, 5*time.Second)
	var missing *TopicError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, []string{topic + "-also", topic + "-mispelt"}, missing.Topics)
	require.False(t, missing.DeadLetters)
	require.Less(t, time.Since(began), 5*time.Second)
	topics, err := testenv.KafkaAdmin(t, brokers).ListTopics()
	require.NoError(t, err)
	require.NotContains(t, topics, topic+"-mispelt")
}

// TestKafka_MissingDeadLetterTopic_K36: and so is a missing topic for dead letters, unless it is to
// be created, in the shape of its source.
func TestKafka_MissingDeadLetterTopic_K36(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 5)
	cfg.CreateDeadLetterTopics = nil
	m := start(t, cfg, routed(func(context.Context, *idem.Message) error { return nil }))
	var missing *TopicError
	require.ErrorAs(t, m.wait(t, 5*time.Second), &missing)
	require.True(t, missing.DeadLetters)

	cfg.CreateDeadLetterTopics = &TopicSpec{Config: map[string]string{"retention.ms": "86400000"}}
	m = start(t, cfg, routed(func(context.Context, *idem.Message) error { return nil }))
	require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
	require.NoError(t, m.end())
	topics, err := testenv.KafkaAdmin(t, brokers).ListTopics()
	require.NoError(t, err)
	letters := topics[topic+"."+cfg.Group+".dlq"]
	require.EqualValues(t, 5, letters.NumPartitions)
	require.EqualValues(t, 1, letters.ReplicationFactor)
	require.Equal(t, "86400000", *letters.ConfigEntries["retention.ms"])
}

// TestKafka_SameInstanceTwice_K25: of two processes with one InstanceID the older one ends, with an
// error that names the reason. No event is handled twice.
func TestKafka_SameInstanceTwice_K25(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 4)
	cfg.InstanceID, cfg.Store = "pod-0", forever()
	produceEvents(t, brokers, topic, 0, 500)
	var got tally
	one := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 500 }, soon, poll)
	began := time.Now()
	two := start(t, cfg, routed(got.handle))
	require.ErrorIs(t, one.wait(t, 10*time.Second), ErrFenced)
	require.Less(t, time.Since(began), 10*time.Second)
	produceEvents(t, brokers, topic, 500, 600)
	require.Eventually(t, func() bool { return got.events() == 600 }, soon, poll)
	require.Equal(t, 600, got.total())
	require.NoError(t, two.end())
}

// TestKafka_StaticRestart_K25: a restart with the same InstanceID moves no partition of the other
// member.
func TestKafka_StaticRestart_K25(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 4)
	cfg.Store = forever()
	var got tally
	cfg.InstanceID = "pod-0"
	one := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return one.Ready() == nil }, soon, poll)
	cfg.InstanceID = "pod-1"
	two := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool {
		return two.Ready() == nil && two.count("partitions assigned") > 0 && claimsOf(two) == 2 && claimsOf(one) == 2
	}, soon, poll)
	before := one.count("partitions assigned")
	require.NoError(t, two.end())
	two = start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return claimsOf(two) == 2 }, soon, poll)
	produceEvents(t, brokers, topic, 0, 100)
	require.Eventually(t, func() bool { return got.events() == 100 }, soon, poll)
	require.Equal(t, before, one.count("partitions assigned"), "the other member's partitions moved")
	require.NoError(t, two.end())
	require.NoError(t, one.end())
}

// sourceClaims are the claims of a member on source topics.
func sourceClaims(m *member) (claims []*runner.Assignment) {
	for _, c := range m.handler.g.Assignments() {
		if slices.Contains(m.cfg.Topics, c.Topic) {
			claims = append(claims, c)
		}
	}
	return claims
}

func claimsOf(m *member) int { return len(sourceClaims(m)) }

// TestKafka_CooperativeJoin_K10: a third member joins while handlers are long. Partitions that stay
// are not disturbed. Partitions that go finish their running events. No event is lost or handled
// twice.
func TestKafka_CooperativeJoin_K10(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 6)
	cfg.Cooperative, cfg.Store, cfg.Grace = true, forever(), 10*time.Second
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	var got tally
	var cancelled atomic.Int64
	handle := func(ctx context.Context, m *idem.Message) error {
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			cancelled.Add(1)
			return err
		}
		got.add(eventID(m))
		return nil
	}
	produceEvents(t, brokers, topic, 0, 240)
	one := start(t, cfg, routed(handle))
	require.Eventually(t, func() bool { return claimsOf(one) == 6 }, soon, poll)
	two := start(t, cfg, routed(handle))
	require.Eventually(t, func() bool { return claimsOf(one) == 3 && claimsOf(two) == 3 }, soon, poll)
	sessions := one.handler.anySession()
	three := start(t, cfg, routed(handle))
	require.Eventually(t, func() bool { return claimsOf(one) == 2 && claimsOf(two) == 2 && claimsOf(three) == 2 }, soon, poll)
	require.Same(t, sessions, one.handler.anySession(), "the session did not survive the rebalance")
	require.Eventually(t, func() bool { return got.events() == 240 }, time.Minute, poll)
	require.Equal(t, 240, got.total())
	require.Zero(t, cancelled.Load())
	require.Zero(t, again.total(), "redelivered although all was committed at the revoke")
	for _, m := range []*member{one, two, three} {
		require.NoError(t, m.end())
		require.NotContains(t, m.String(), "partitions lost")
	}
}

func (h *GroupHandler) anySession() *runner.ActiveSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		return s.ActiveSession
	}
	return nil
}

// anyMember returns the ID of the member in a session.
func (h *GroupHandler) anyMember() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		return s.MemberID()
	}
	return ""
}

// anyContext returns the context of a session.
func (h *GroupHandler) anyContext() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		return s.Context()
	}
	return nil
}

// TestKafka_HungHandler_K07: a handler that ignores its context does not hold the partition, which
// moves within the grace. The error of Run reports the abandoned handler (rule 56).
func TestKafka_HungHandler_K07(t *testing.T) {
	t.Parallel()
	for _, cooperative := range []bool{false, true} {
		brokers, topic, cfg := onKafka(t, 2)
		cfg.Cooperative, cfg.Store, cfg.Grace = cooperative, forever(), 4*time.Second
		cfg.Lease = 5 * time.Second
		gate := make(chan struct{})
		var got tally
		var hung atomic.Bool
		handle := func(_ context.Context, m *idem.Message) error {
			if hung.CompareAndSwap(false, true) {
				<-gate
			}
			got.add(eventID(m))
			return nil
		}
		one := start(t, cfg, routed(handle))
		require.Eventually(t, func() bool { return claimsOf(one) == 2 }, soon, poll)
		produceEvents(t, brokers, topic, 0, 40)
		require.Eventually(t, func() bool { return got.events() > 0 }, soon, poll)
		began := time.Now()
		two := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
			got.add(eventID(m))
			return nil
		}))
		require.Eventually(t, func() bool { return claimsOf(two) == 1 }, 10*time.Second, poll)
		t.Logf("cooperative %v: moved after %s", cooperative, time.Since(began))
		err := one.end()
		require.ErrorIs(t, err, idem.ErrAbandoned)
		require.Eventually(t, func() bool { return got.events() == 40 }, soon, poll)
		require.NoError(t, two.end())
		close(gate)
	}
}

// TestKafka_PanicAndGoexit_K23: the worker lives, the partition moves on, and each event ends as
// one dead letter.
func TestKafka_PanicAndGoexit_K23(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 1)
	produceEvents(t, brokers, topic, 0, 10)
	var got tally
	m := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		switch eventID(m) {
		case "2":
			panic(errTest)
		case "4":
			panic(nil) //nolint:govet // on purpose
		case "6":
			runtime.Goexit()
		case "8":
			var none map[string]int
			none["x"] = 1 //nolint:govet,staticcheck // on purpose
		}
		got.add(eventID(m))
		return nil
	}, idem.Retry(idem.RetryPolicy{MaxAttempts: 2, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})))
	letters := readAll(t, brokers, topic+"."+cfg.Group+".dlq", 4)
	for _, l := range letters {
		require.Equal(t, "panic", header(l, deadletter.HeaderErrorClass))
		require.Equal(t, "2", header(l, deadletter.HeaderAttempts))
	}
	require.Eventually(t, func() bool { return got.events() == 6 }, soon, poll)
	require.NoError(t, m.end())
	require.EqualValues(t, 10, committed(t, brokers, cfg.Group, topic, 0)[0])
}

func header(m *sarama.ConsumerMessage, name string) string {
	for _, h := range m.Headers {
		if string(h.Key) == name {
			return string(h.Value)
		}
	}
	return ""
}

// TestKafka_BrokersAway: brokers that cannot be reached are waited for, with one line, until ctx
// ends.
func TestKafka_BrokersAway(t *testing.T) {
	t.Parallel()
	addr := testenv.FreeAddr(t)
	m := start(t, Config{Brokers: []string{addr}, Group: "g", Topics: []string{"t"}},
		routed(func(context.Context, *idem.Message) error { return nil }))
	require.Eventually(t, func() bool { return m.count("cannot consume") > 0 }, soon, poll)
	require.ErrorIs(t, m.Ready(), ErrNotReady)
	select {
	case <-m.done:
		t.Fatal("gave up", m.err)
	case <-time.After(3 * time.Second):
	}
	require.Equal(t, 1, m.count("cannot consume"), m.String())
	began := time.Now()
	require.NoError(t, m.end())
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorIs(t, m.Run(context.Background()), ErrRunTwice)
}
