package kafkagoidem

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// This file runs whole runners on the real broker.

// TestKafka_Memberships_K05: no event is handled or delivered twice while members join and leave.
func TestKafka_Memberships_K05(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 6)
	threeMembers(t, brokers, topic, cfg)
}

// TestKafka_Stop_K03: a stop while handlers run commits all of their events and begins no other.
func TestKafka_Stop_K03(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 4)
	stopUnderLoad(t, brokers, topic, cfg)
}

// TestKafka_Lost_K11: a member that the group has removed ends its handlers at once.
func TestKafka_Lost_K11(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 1)
	lost(t, brokers, topic, cfg)
}

// TestKafka_Gap_K17: the log is cut above the committed offset.
func TestKafka_Gap_K17(t *testing.T) {
	for policy, first := range map[runner.GapPolicy]int64{
		runner.FailOnGap: -1, runner.EarliestOnGap: 50, runner.LatestOnGap: 100,
	} {
		t.Run(policy.String(), func(t *testing.T) {
			brokers, topic, cfg := onKafka(t, 1)
			gap(t, brokers, topic, cfg, policy, first)
		})
	}
}

// TestKafka_SlowHandler_K06: a handler outlasts the session time-out during a rebalance. The member
// stays in the group, and the event is not delivered again.
func TestKafka_SlowHandler_K06(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 2)
	slowHandler(t, brokers, topic, cfg)
}

func slowHandler(t *testing.T, brokers []string, topic string, cfg Config) {
	cfg.Store, cfg.Grace = forever(), 20*time.Second
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	produceEvents(t, brokers, topic, 0, 1)
	var got tally
	slow := func(ctx context.Context, m *idem.Message) error {
		got.add(eventID(m))
		return runner.Pause(ctx, 10*time.Second)
	}
	first := start(t, cfg, routed(slow))
	require.Eventually(t, func() bool { return got.total() == 1 }, soon, poll)
	second := start(t, cfg, routed(slow))
	require.Eventually(t, func() bool { return second.claims() == 1 && first.claims() == 1 }, soon, poll)
	require.NoError(t, first.end())
	require.NoError(t, second.end())
	require.Equal(t, 1, got.total())
	require.Empty(t, again.seen())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, 1, sum)
}

// TestKafka_Transactions_K30: aborted records are not handled, and the markers behind the last
// record are committed, so that their deletion is no gap (K-17).
func TestKafka_Transactions_K30(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 1)
	cl := clientOf(t, brokers, kgo.TransactionalID(topic))
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(t.Context(), record(topic, 2*i), record(topic, 2*i+1)).FirstErr())
		require.NoError(t, cl.EndTransaction(t.Context(), end))
	}
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool {
		sum, _ := committed(t, brokers, cfg.Group, topic)
		return sum == 12 // 8 records, 4 markers
	}, soon, 100*time.Millisecond)
	require.NoError(t, m.end())
	require.Equal(t, map[string]int{"0": 1, "1": 1, "4": 1, "5": 1}, got.n)
}

// TestKafka_StopWhileJoining_K06: a member stops while the group waits for the handler of another
// one. The stop does not wait for that handler.
func TestKafka_StopWhileJoining_K06(t *testing.T) {
	brokers, topic, cfg := onKafka(t, 2)
	cfg.Store, cfg.Grace = forever(), 30*time.Second
	hold := make(chan struct{})
	var got tally
	slow := start(t, cfg, routed(func(_ context.Context, m *idem.Message) error {
		got.add(eventID(m))
		<-hold
		return nil
	}))
	quick := start(t, cfg, routed(func(context.Context, *idem.Message) error { return nil }))
	require.Eventually(t, func() bool { return slow.claims() == 1 && quick.claims() == 1 }, soon, poll)
	produceEvents(t, brokers, topic, 0, 20)
	require.Eventually(t, func() bool { return got.events() == 1 }, soon, poll)
	third := start(t, cfg, routed(got.handle)) // begins a rebalance, which the slow one holds up
	require.Eventually(t, func() bool { return quick.claims() == 0 }, soon, poll)
	began := time.Now()
	require.NoError(t, quick.end())
	require.Less(t, time.Since(began), 8*time.Second)
	require.NotContains(t, quick.String(), "leaving the group failed")
	close(hold)
	require.Eventually(t, func() bool { return third.claims() == 1 && slow.claims() == 1 }, soon, poll)
	require.NoError(t, slow.end())
	require.NoError(t, third.end())
}
