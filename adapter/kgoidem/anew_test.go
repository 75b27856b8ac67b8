package kgoidem

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/idem-go/idem/runner"
)

// TestKfake_TopicMadeAnew_K28: a topic is deleted and made anew before a look at the topics. The
// end below the position is a gap, and the records of the new topic are read.
func TestKfake_TopicMadeAnew_K28(t *testing.T) {
	for _, protocol := range []Protocol{Cooperative, Eager, NextGeneration} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			brokers := fakeBrokers(t, 1, "a", "b")
			cfg, seen := configFor(brokers, "a"), new(gaps)
			cfg.Protocol, cfg.Topics, cfg.OnGap = protocol, []string{"a", "b"}, runner.EarliestOnGap
			cfg.Observers = append(cfg.Observers, seen)
			produceEvents(t, brokers, "a", 0, 5)
			produceEvents(t, brokers, "b", 5, 10)
			var got tally
			m := start(t, cfg, routed(got.handle))
			require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
			admin := kadm.NewClient(clientOf(t, brokers))
			_, err := admin.DeleteTopic(t.Context(), "b")
			require.NoError(t, err)
			_, err = admin.CreateTopic(t.Context(), 1, 1, nil, "b")
			require.NoError(t, err)
			produceEvents(t, brokers, "b", 20, 23) // fewer than before
			produceEvents(t, brokers, "a", 10, 20)
			require.Eventually(t, func() bool { return got.events() == 23 && m.Ready() == nil }, soon, poll)
			require.Len(t, seen.seen(), 1)
			require.NoError(t, m.end())
			require.Equal(t, 23, got.total())
		})
	}
}
