package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
)

// TestKafka_StrategySwitch_K26_K42: a rolling deployment switches six members to cooperative
// rebalancing, one after another, while events come. No event is lost or handled twice, and members
// that stop in order cause no redelivery.
func TestKafka_StrategySwitch_K26_K42(t *testing.T) {
	t.Parallel()
	brokers, topic, cfg := onKafka(t, 12)
	cfg.Store = forever()
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	var got tally
	handler := func(ctx context.Context, m *idem.Message) error {
		got.add(eventID(m))
		return pause(ctx, 2*time.Millisecond)
	}
	sent := 0
	step := func() {
		t.Helper()
		produceEvents(t, brokers, topic, sent, sent+200)
		sent += 200
		require.Eventually(t, func() bool { return got.events() > sent-150 }, soon, poll)
	}
	open := func(cooperative bool) *member {
		t.Helper()
		cfg.Cooperative = cooperative
		return start(t, cfg, routed(handler))
	}
	admin := testenv.KafkaAdmin(t, brokers)
	// A member that stops during a rebalance may lose its generation before it commits:
	// ErrNotCommitted. No rebalance comes after the group rests with all members, and with each
	// partition in a member. A second rebalance begins within a heartbeat, which is 300 ms here.
	rests := func(members []*member) {
		t.Helper()
		var since time.Time
		shared := func() bool {
			held := 0
			for _, m := range members {
				held += claimsOf(m)
			}
			return held == 12
		}
		require.Eventually(t, func() bool {
			d, err := admin.DescribeConsumerGroups([]string{cfg.Group})
			switch {
			case err != nil || len(d) != 1 || d[0].State != "Stable" || len(d[0].Members) != len(members) || !shared():
				since = time.Time{}
			case since.IsZero():
				since = time.Now()
			}
			return !since.IsZero() && time.Since(since) > 600*time.Millisecond
		}, soon, poll)
	}
	var group []*member
	for range 6 {
		group = append(group, open(false))
	}
	step()
	for range 6 {
		rests(group)
		require.NoError(t, group[0].end())
		group = append(group[1:], open(true))
		step()
	}
	require.Eventually(t, func() bool { return got.events() == sent }, soon, poll)
	for i, m := range group[:5] {
		rests(group[i:])
		require.NoError(t, m.end())
		require.Zero(t, m.count("level=ERROR"))
	}
	require.NoError(t, group[5].end())
	require.Zero(t, group[5].count("level=ERROR"))
	require.Equal(t, sent, got.total())
	t.Logf("%d events, 12 starts and stops, %d redelivered", sent, again.total())
	require.Zero(t, again.total())
}
