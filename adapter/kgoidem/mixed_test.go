package kgoidem

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// old is a consumer on sarama under way.
type old struct {
	*consumer.Consumer
	stop context.CancelFunc
	done chan error
}

func startOld(t *testing.T, cfg Config, router *idem.Router) *old {
	t.Helper()
	c, err := consumer.New(consumer.Config{
		Brokers: cfg.Brokers, Group: cfg.Group, Topics: cfg.Topics, Store: cfg.Store,
		CreateDeadLetterTopics: cfg.CreateDeadLetterTopics, Grace: cfg.Grace,
		Observers: cfg.Observers, Cooperative: cfg.Protocol == Cooperative,
		Logger: slog.New(slog.DiscardHandler),
		Sarama: func(sc *sarama.Config) {
			sc.Consumer.Group.Session.Timeout = 6 * time.Second
			sc.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
			sc.Consumer.MaxWaitTime = 100 * time.Millisecond
		},
	}, router)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	o := &old{Consumer: c, stop: stop, done: make(chan error, 1)}
	go func() { o.done <- c.Run(ctx) }()
	t.Cleanup(stop)
	return o
}

func (o *old) end() error {
	o.stop()
	return <-o.done
}

// TestMixed_Rolling_K26 moves a group from package consumer to this one, member by member, and
// back, while events come. Both runners are in the group at once. No event is handled twice, and no
// record is delivered again.
func TestMixed_Rolling_K26(t *testing.T) {
	for name, world := range map[string]func(*testing.T, int32) ([]string, string, Config){
		"kfake": onFake, "kafka": onKafka,
	} {
		for _, protocol := range []Protocol{Cooperative, Eager} {
			t.Run(name+","+protocol.String(), func(t *testing.T) {
				brokers, topic, cfg := world(t, 6)
				cfg.Protocol = protocol
				roll(t, brokers, topic, cfg)
			})
		}
	}
}

func roll(t *testing.T, brokers []string, topic string, cfg Config) {
	cfg.Store, cfg.Grace = forever(), 5*time.Second
	again := new(duplicates)
	cfg.Observers = []observe.Observer{again}
	var got tally
	router := func() *idem.Router {
		return routed(func(ctx context.Context, m *idem.Message) error {
			got.add(eventID(m))
			return runner.Pause(ctx, 5*time.Millisecond)
		})
	}
	sent := 0
	// step sends events for the members of the moment, and waits until the first are handled.
	step := func() {
		t.Helper()
		produceEvents(t, brokers, topic, sent, sent+200)
		sent += 200
		require.Eventually(t, func() bool { return got.events() > sent-150 }, soon, poll)
	}
	var before []*old
	for range 2 {
		before = append(before, startOld(t, cfg, router()))
	}
	step()
	var after []*running
	for _, o := range before {
		m := start(t, cfg, router())
		after = append(after, m)
		require.Eventually(t, func() bool { return m.claims() > 0 }, soon, poll)
		step()
		require.NoError(t, o.end())
		step()
	}
	back := startOld(t, cfg, router())
	step()
	require.NoError(t, after[0].end())
	step()
	require.Eventually(t, func() bool { return got.events() == sent }, soon, poll)
	require.NoError(t, after[1].end())
	require.NoError(t, back.end())
	require.Equal(t, sent, got.total())
	require.Empty(t, again.seen())
	sum, _ := committed(t, brokers, cfg.Group, topic)
	require.EqualValues(t, sent, sum)
}

// TestMixed_OldEpoch_K32: sarama commits its offsets with the epoch that this runner has committed
// before. The log has a newer epoch since, which is no cut of the log.
func TestMixed_OldEpoch_K32(t *testing.T) {
	cluster, cfg := onCluster(t, 1)
	seen := new(gaps)
	cfg.Store, cfg.Observers = forever(), []observe.Observer{seen}
	var got tally
	produceEvents(t, cfg.Brokers, "orders", 0, 10)
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.NoError(t, m.end())

	require.NoError(t, cluster.MoveTopicPartition("orders", 0, cluster.LeaderFor("orders", 0)))
	produceEvents(t, cfg.Brokers, "orders", 10, 20)
	o := startOld(t, cfg, routed(got.handle))
	admin := kadm.NewClient(clientOf(t, cfg.Brokers))
	var crashed kadm.Offsets
	require.Eventually(t, func() bool {
		offsets, err := admin.FetchOffsets(t.Context(), cfg.Group)
		require.NoError(t, err)
		crashed = offsets.Offsets()
		return crashed["orders"][0].At == 20
	}, soon, poll)
	require.Zero(t, crashed["orders"][0].LeaderEpoch, "the epoch of offset 10")
	require.NoError(t, o.end()) // the commit of a stop has no epoch; that of a crash would stay
	require.NoError(t, admin.CommitAllOffsets(t.Context(), cfg.Group, crashed))

	produceEvents(t, cfg.Brokers, "orders", 20, 30)
	m = start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 30 || m.waits() }, soon, poll)
	require.NoError(t, m.end())
	require.Empty(t, seen.seen())
	require.Equal(t, 30, got.total())
}
