package kafkagoidem

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// onCluster returns a fake Kafka whose answers a test may change, and a Config for it that commits
// at the end of a generation only.
func onCluster(t *testing.T) (*kfake.Cluster, Config) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	cfg := configFor(cluster.ListenAddrs(), "orders")
	cfg.CommitInterval = time.Hour
	return cluster, cfg
}

// TestPasses is the table of errors after which a commit is tried again.
func TestPasses(t *testing.T) {
	for err, want := range map[error]bool{
		kafka.RebalanceInProgress: true, kafka.GroupLoadInProgress: true,
		kafka.GroupCoordinatorNotAvailable: true, kafka.NotCoordinatorForGroup: true,
		io.ErrUnexpectedEOF: true, runner.ErrNoAnswer: true,
		kafka.IllegalGeneration: false, kafka.UnknownMemberId: false,
		kafka.GroupAuthorizationFailed: false, kafka.TopicAuthorizationFailed: false,
	} {
		require.Equal(t, want, passes(err), err)
	}
}

// TestHeldCommit_K03: the coordinator does not answer a commit. The direct commit of a stop does
// not wait for that one.
func TestHeldCommit_K03(t *testing.T) {
	t.Parallel()
	cluster, cfg := onCluster(t)
	held := make(chan struct{})
	var later atomic.Bool
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if !later.Swap(true) {
			cluster.SleepControl(func() { <-held })
		}
		return nil, nil, false
	})
	produceEvents(t, cfg.Brokers, "orders", 0, 10)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	err := m.end()
	close(held)
	require.NoError(t, err)
	sum, _ := committed(t, cfg.Brokers, cfg.Group, "orders")
	require.EqualValues(t, 10, sum)
}

// TestCoordinatorMoves_K24: the coordinator moves while a member gives its partitions back. The
// offsets are committed nevertheless, and no record is delivered again.
func TestCoordinatorMoves_K24(t *testing.T) {
	t.Parallel()
	cluster, cfg := onCluster(t)
	again := new(duplicates)
	cfg.Store, cfg.Observers = forever(), []observe.Observer{again}
	var mu sync.Mutex
	heartbeat := true   // the first request is one, see [session.watch]
	var moved time.Time // when the commit came
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		commit, ok := req.(*kmsg.OffsetCommitRequest)
		if heartbeat {
			heartbeat = false
			return nil, nil, false
		}
		if moved.IsZero() {
			moved = time.Now()
		}
		if !ok || time.Since(moved) > 400*time.Millisecond {
			return nil, nil, false
		}
		return refuseCommit(commit, kerr.NotCoordinator), nil, true
	})
	produceEvents(t, cfg.Brokers, "orders", 0, 10)
	var got tally
	one := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	two := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool {
		return one.Ready() == nil && two.Ready() == nil && one.claims()+two.claims() == 1
	}, soon, poll)
	require.NoError(t, one.end())
	require.NoError(t, two.end())
	require.Empty(t, again.seen())
	sum, _ := committed(t, cfg.Brokers, cfg.Group, "orders")
	require.EqualValues(t, 10, sum)
}

// refuseCommit answers a commit with an error for each partition.
func refuseCommit(commit *kmsg.OffsetCommitRequest, code *kerr.Error) kmsg.Response {
	resp, _ := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range commit.Topics {
		topic := kmsg.NewOffsetCommitResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitResponseTopicPartition{
				Partition: p.Partition, ErrorCode: code.Code,
			})
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
