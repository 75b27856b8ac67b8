package kgoidem

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/runner"
)

// TestOlderCommit_K03: a commit is tried again and again while newer events are handled. After a
// stop the newest offset is committed, since the older one does not come later.
func TestOlderCommit_K03(t *testing.T) {
	cluster, cfg := onCluster(t, 1)
	cfg.CommitInterval = 50 * time.Millisecond
	const first, all = 5, 10
	var older atomic.Int64 // refused commits
	var newest atomic.Bool // the newest offset was committed
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		commit, ok := req.(*kmsg.OffsetCommitRequest)
		if !ok || newest.Load() || len(commit.Topics) != 1 || commit.Topics[0].Topic != "orders" {
			return nil, nil, false
		}
		if commit.Topics[0].Partitions[0].Offset == all {
			newest.Store(true)
			return nil, nil, false
		}
		older.Add(1)
		return refuseCommit(commit, kerr.CoordinatorLoadInProgress), nil, true
	})
	var got tally
	produceEvents(t, cfg.Brokers, "orders", 0, first)
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == first && older.Load() > 0 }, soon, poll)
	produceEvents(t, cfg.Brokers, "orders", first, all)
	require.Eventually(t, func() bool { return got.events() == all }, soon, poll)
	require.NoError(t, m.end())
	require.True(t, newest.Load())
	sum, _ := committed(t, cfg.Brokers, cfg.Group, "orders")
	require.EqualValues(t, all, sum)
}

// TestCommitBesideDirect_K03: a commit that waits for direct ones is made after them. The offsets of
// a partition that is given back would be missing otherwise.
func TestCommitBesideDirect_K03(t *testing.T) {
	cluster, cfg := onCluster(t, 2)
	cfg.CommitInterval = time.Hour
	var got tally
	produceEvents(t, cfg.Brokers, "orders", 0, 10)
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 && m.claims() == 2 }, soon, poll)
	came, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		once.Do(func() { close(came) })
		cluster.SleepControl(func() { <-hold })
		return nil, nil, false
	})
	s := m.current.Load().session
	var committing sync.WaitGroup
	direct := func() {
		_, err := s.CommitDirectly(t.Context(), map[partition]int64{{Topic: "other"}: 0})
		require.NoError(t, err)
	}
	committing.Go(direct)
	<-came
	committing.Go(s.on.Commit)
	require.NoError(t, runner.Pause(t.Context(), 50*time.Millisecond))
	committing.Go(direct)
	require.NoError(t, runner.Pause(t.Context(), 50*time.Millisecond))
	close(hold)
	committing.Wait()
	sum, _ := committed(t, cfg.Brokers, cfg.Group, "orders")
	require.EqualValues(t, 10, sum)
	require.NoError(t, m.end())
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
