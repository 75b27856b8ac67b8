package kgoidem

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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

// TestDirectCommit_Turn_K03: a direct commit waits for the commit under way, but not for all of its
// retries. No other commit begins before the direct one.
func TestDirectCommit_Turn_K03(t *testing.T) {
	cl := clientOf(t, []string{"localhost:1"}) // in no group, so nothing is sent
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t.Context(), nil)
		m.cl = cl
		s := newSession(m)
		ctx, cancel := context.WithTimeout(t.Context(), commitTime)
		defer cancel()
		require.NoError(t, s.committing.take(ctx))
		require.True(t, s.begin(cancel))
		another := make(chan bool, 1)
		go func() { // the commit under way
			<-ctx.Done()
			another <- s.begin(cancel)
			s.finish()
			s.committing.leave()
		}()
		began := time.Now()
		_, err := s.CommitDirectly(t.Context(), map[partition]int64{{Topic: "orders"}: 1})
		require.ErrorIs(t, err, kerr.UnknownMemberID)
		require.Equal(t, directPatience, time.Since(began))
		require.False(t, <-another, "the direct one goes first")
		require.True(t, s.begin(cancel))
	})
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
