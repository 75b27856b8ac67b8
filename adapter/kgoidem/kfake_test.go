package kgoidem

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

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

// TestMemberships runs three members with every kind of membership, through joins and stops.
func TestMemberships(t *testing.T) {
	for _, protocol := range []Protocol{Cooperative, Eager, NextGeneration} {
		for _, static := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,static=%v", protocol, static), func(t *testing.T) {
				brokers, topic, cfg := onFake(t, 6)
				cfg.Protocol = protocol
				threeMembers(t, brokers, topic, cfg, static)
			})
		}
	}
}

// threeMembers starts three members one after the other while events come, and stops them. No event
// is handled twice, and no record is delivered again.
func threeMembers(t *testing.T, brokers []string, topic string, cfg Config, static bool) {
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
	for i := range 3 {
		if static {
			cfg.InstanceID = fmt.Sprint("pod-", i)
		}
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

// topicEvents collects reports of topics that come and go.
type topicEvents struct {
	mu   sync.Mutex
	list []observe.TopicEvent
}

func (o *topicEvents) ObserveTopic(_ context.Context, e observe.TopicEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, e)
}

func (o *topicEvents) seen() []observe.TopicEvent {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.list)
}

// TestKfake_DeletedTopic_K27: a deleted topic is reported, and the others go on. The topic is read
// again when it is back.
func TestKfake_DeletedTopic_K27(t *testing.T) {
	for _, protocol := range []Protocol{Cooperative, Eager, NextGeneration} {
		t.Run(protocol.String(), func(t *testing.T) {
			t.Parallel()
			brokers := fakeBrokers(t, 1, "a", "b")
			cfg, seen := configFor(brokers, "a"), new(topicEvents)
			cfg.Protocol, cfg.Topics = protocol, []string{"a", "b"}
			cfg.OnGap, cfg.Observers = runner.EarliestOnGap, []observe.Observer{seen}
			produceEvents(t, brokers, "a", 0, 5)
			produceEvents(t, brokers, "b", 5, 10)
			var got tally
			m := start(t, cfg, routed(got.handle), func(r *Runner) { r.life.Topics.Every = time.Second })
			require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
			admin := kadm.NewClient(clientOf(t, brokers))
			_, err := admin.DeleteTopic(t.Context(), "b")
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				err := m.Ready()
				return err != nil && strings.Contains(err.Error(), "topic b")
			}, soon, poll)
			produceEvents(t, brokers, "a", 10, 20)
			require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
			require.Equal(t, []observe.TopicEvent{{Group: cfg.Group, Topic: "b", Missing: true}}, seen.seen())
			_, err = admin.CreateTopic(t.Context(), 1, 1, nil, "b")
			require.NoError(t, err)
			produceEvents(t, brokers, "b", 20, 23) // fewer than before, so all are read (K-28)
			require.Eventually(t, func() bool { return got.events() == 23 && m.Ready() == nil }, soon, poll)
			require.NoError(t, m.end())
		})
	}
}
