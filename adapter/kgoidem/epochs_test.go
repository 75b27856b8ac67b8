package kgoidem

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// cutAt answers questions about epochs as after a cut of the log of one partition: its epochs end at
// an offset. The other logs are whole. times bounds the answers that tell of the cut.
func cutAt(cluster *kfake.Cluster, id int32, end, times int64) {
	var told atomic.Int64
	const whole = 1 << 40
	cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked, _ := req.(*kmsg.OffsetForLeaderEpochRequest)
		resp, _ := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range asked.Topics {
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic = t.Topic
			for _, p := range t.Partitions {
				answer := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				answer.Partition, answer.LeaderEpoch, answer.EndOffset = p.Partition, p.LeaderEpoch, whole
				if p.Partition == id && told.Add(1) <= times {
					answer.EndOffset = end
				}
				topic.Partitions = append(topic.Partitions, answer)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}

// TestCutWhileAway_K32: the log was cut below the committed offset while no member read it, and has
// grown beyond it since. The policy decides, and the cut is reported once in a run.
func TestCutWhileAway_K32(t *testing.T) {
	for _, protocol := range []Protocol{Cooperative, NextGeneration} {
		for policy, again := range map[runner.GapPolicy]int{
			runner.FailOnGap: 0, runner.EarliestOnGap: 7, runner.LatestOnGap: 0,
		} {
			t.Run(protocol.String()+","+policy.String(), func(t *testing.T) {
				cluster, cfg := onCluster(t, 1)
				cfg.Protocol, cfg.Store = protocol, forever()
				var got tally
				produceEvents(t, cfg.Brokers, "orders", 0, 10)
				m := start(t, cfg, routed(got.handle))
				require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
				require.NoError(t, m.end())
				produceEvents(t, cfg.Brokers, "orders", 10, 20)
				const always = 1 << 40
				cutAt(cluster, 0, 3, always)
				known, seen := new(duplicates), new(gaps)
				cfg.OnGap, cfg.Observers = policy, []observe.Observer{known, seen}
				if policy == runner.FailOnGap {
					for range 2 { // a restart does not pass over the cut
						err := start(t, cfg, routed(got.handle)).wait(t, soon)
						var gap *runner.GapError
						require.ErrorAs(t, err, &gap)
						require.Equal(t, runner.GapError{
							Topic: "orders", Committed: 10, Oldest: 3, Newest: 3, Cut: true,
						}, *gap)
					}
					require.Equal(t, 10, got.total())
					return
				}
				m = start(t, cfg, routed(got.handle))
				require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
				require.NoError(t, m.end())
				require.Len(t, known.seen(), again, "records that have taken the offsets of others are read")
				require.Equal(t, []observe.GapEvent{{
					Group: cfg.Group, Topic: "orders", Committed: 10, Oldest: 3, Newest: 3, Cut: true,
					Policy: policy.String(),
				}}, seen.seen())
				require.Contains(t, m.String(), "next=10 cut_at=3 policy="+policy.String())
				require.Equal(t, 20, got.total())
			})
		}
	}
}

// TestCutOfAnotherPartition_K32: two logs were cut, and the member leaves after the report on the
// first. The next membership finds the cut of the second, although that log has grown since.
func TestCutOfAnotherPartition_K32(t *testing.T) {
	cluster, cfg := onCluster(t, 2)
	known, seen := new(duplicates), new(gaps)
	cfg.OnGap, cfg.Observers = runner.EarliestOnGap, []observe.Observer{known, seen}
	producer := manual(t, cfg.Brokers)
	produce := func(from, to int) {
		var records []*kgo.Record
		for i := from; i < to; i++ {
			r := record("orders", i)
			r.Partition = int32(i % 2)
			records = append(records, r)
		}
		require.NoError(t, producer.ProduceSync(t.Context(), records...).FirstErr())
	}
	produce(0, 20)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	cutAt(cluster, 1, 3, 1)
	m.current.Load().dataLoss(&kgo.ErrDataLoss{Topic: "orders", ConsumedTo: 10, ResetTo: 3})
	produce(20, 40)
	require.Eventually(t, func() bool { return got.events() == 40 && len(known.seen()) == 14 }, soon, poll,
		"offsets 3 to 9 of both partitions run again")
	require.NoError(t, m.end())
	require.Len(t, seen.seen(), 2)
	require.Len(t, known.seen(), 14)
	sum, _ := committed(t, cfg.Brokers, cfg.Group, "orders")
	require.EqualValues(t, 40, sum)
}

// TestCutOfRetryTopic_K32: the report of a cut has the policy that is applied. No policy skips a copy
// in a retry topic.
func TestCutOfRetryTopic_K32(t *testing.T) {
	const retry = "orders.g.retry"
	for name, c := range map[string]struct {
		configured runner.GapPolicy
		topic      string
		policy     string
		goesOn     int64 // the bound of the next offset, 0: Run ends
	}{
		"fail":                  {runner.FailOnGap, "orders", "fail", 0},
		"fail, retry topic":     {runner.FailOnGap, retry, "fail", 0},
		"earliest":              {runner.EarliestOnGap, "orders", "earliest", 3},
		"earliest, retry topic": {runner.EarliestOnGap, retry, "earliest", 3},
		"latest":                {runner.LatestOnGap, "orders", "latest", math.MaxInt64},
		"latest, retry topic":   {runner.LatestOnGap, retry, "earliest", 3},
	} {
		t.Run(name, func(t *testing.T) {
			var log logs
			seen := new(gaps)
			cfg := configFor([]string{"127.0.0.1:1"}, "orders")
			cfg.Group, cfg.Store, cfg.OnGap, cfg.Observers = "g", forever(), c.configured, []observe.Observer{seen}
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			r, err := New(cfg, routed(new(tally).handle))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, r.group.Close()) })
			m := newMember(t.Context(), r)
			m.session = newSession(m)
			m.dataLoss(&kgo.ErrDataLoss{Topic: c.topic, Partition: 1, ConsumedTo: 10, ResetTo: 3})
			require.Equal(t, c.goesOn, m.session.cuts[partition{Topic: c.topic, Partition: 1}])
			require.Equal(t, []observe.GapEvent{{
				Group: "g", Topic: c.topic, Partition: 1, Committed: 10, Oldest: 3, Newest: 3, Cut: true,
				Policy: c.policy,
			}}, seen.seen())
			require.Contains(t, log.String(), "next=10 cut_at=3 policy="+c.policy)
			var again *runner.ComeBack
			require.Equal(t, c.goesOn > 0, errors.As(context.Cause(m.ctx), &again))
		})
	}
}

// TestCommittedEpoch_K32: a commit has the epoch of the last record below the offset, and the stamp
// that vouches for it. A commit at a cut of the log has none.
func TestCommittedEpoch_K32(t *testing.T) {
	p := partition{Topic: "orders", Partition: 3}
	for name, c := range map[string]struct {
		next  int64
		cut   func(*session)
		epoch int32
	}{
		"the newest record":     {next: 14, epoch: 6},
		"an older record":       {next: 7, epoch: 4},
		"behind a marker":       {next: 8, epoch: 5},
		"before all records":    {next: 6, epoch: noEpoch},
		"beyond all records":    {next: 15, epoch: noEpoch},
		"after a removed one":   {next: 10, epoch: 5},
		"at a removed one":      {next: 12, epoch: noEpoch},
		"an old message format": {next: 11, epoch: noEpoch},
		"behind a cut":          {next: 9, cut: func(s *session) { s.cut(p, 8) }, epoch: noEpoch},
		"a cut is passed over":  {next: 9, cut: func(s *session) { s.passOver(p) }, epoch: noEpoch},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(&member{ctx: t.Context(), r: new(Runner)})
			claim := newClaim(t.Context(), nil, p, runner.Place{Offset: 5, Committed: true})
			s.begins(p, runner.Place{Offset: 5, Committed: true}, claim.epochs)
			marker := kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
			claim.add([]*kgo.Record{
				{Offset: 6, LeaderEpoch: 4}, {Offset: 7, LeaderEpoch: 5, Attrs: marker},
				{Offset: 9, LeaderEpoch: 5}, {Offset: 10, LeaderEpoch: noEpoch}, {Offset: 6, LeaderEpoch: 9},
				{Offset: 13, LeaderEpoch: 6},
			})
			if c.cut != nil {
				c.cut(s)
			}
			next, epoch := s.commits(p, c.next)
			require.Equal(t, c.epoch, epoch)
			if epoch == noEpoch {
				return
			}
			require.Equal(t, c.next, next)
		})
	}
}

// TestCutDuringACommit_K32: a cut is passed over while a commit with an epoch is in flight. The next
// commit takes the epoch back, so no later membership finds the cut again.
func TestCutDuringACommit_K32(t *testing.T) {
	cluster, cfg := onCluster(t, 1)
	cfg.CommitInterval = time.Hour
	produceEvents(t, cfg.Brokers, "orders", 0, 10)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 && m.claims() == 1 }, soon, poll)
	s, p := m.current.Load().session, partition{Topic: "orders"}
	type commit struct {
		at    int64
		epoch int32
		stamp *string
	}
	commits := make(chan commit, 10)
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked, _ := req.(*kmsg.OffsetCommitRequest)
		sent := asked.Topics[0].Partitions[0]
		commits <- commit{sent.Offset, sent.LeaderEpoch, sent.Metadata}
		if sent.LeaderEpoch != noEpoch {
			s.passOver(p)
		}
		return nil, nil, false
	})
	s.Mark(p, 10)
	for range 3 {
		require.NoError(t, s.commit(t.Context()))
	}
	require.Len(t, commits, 2, "a mark is committed until the broker has it without an epoch")
	first := <-commits
	require.NotNil(t, first.stamp)
	require.EqualValues(t, 10, first.at)
	require.Equal(t, commit{at: 10, epoch: noEpoch}, <-commits)
	require.NoError(t, m.end())
}
