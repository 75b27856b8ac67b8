package storetest

import (
	"math"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// progressTests cover dedup.ProgressRecorder. When a store forgets is not tested: the time of a
// deletion is the store's.
var progressTests = []testCase{
	{name: "progress: the offsets on record, by topic and partition", needs: Progress,
		run: progressRead},
	{name: "progress: a lower Next replaces a higher one (rule 8)", needs: Progress,
		run: progressRewound},
	{name: "progress: scopes, topics and partitions are apart (rule 8)", needs: Progress,
		run: progressApart},
	{name: "progress: a server that is down is unavailable (R-19)", needs: Progress,
		run: progressDown},
}

func (k *kit) recorderOf(s dedup.Store) dedup.ProgressRecorder {
	k.Helper()
	p, ok := s.(dedup.ProgressRecorder)
	require.True(k, ok, "%T is no dedup.ProgressRecorder, and storetest.Progress is not in "+
		"Harness.Missing", s)
	return p
}

func (k *kit) record(scope string, progress ...dedup.Progress) {
	k.Helper()
	require.NoError(k, k.recorderOf(k.s).RecordProgress(k.ctx, scope, progress))
}

// recorded requires the progress of scope in these topics, read through the peer.
func (k *kit) recorded(scope string, topics []string, want ...dedup.Progress) {
	k.Helper()
	got, err := k.recorderOf(k.peer).Progress(k.ctx, scope, topics...)
	require.NoError(k, err)
	require.Len(k, got, len(want), "progress of %q in %q", scope, topics)
	for i := range want {
		require.Equal(k, want[i], got[i], "progress of %q in %q", scope, topics)
	}
}

func progressRead(k *kit) {
	topics := []string{"b", "c", "a"}
	k.record("orders")
	k.recorded("orders", topics)
	k.record("orders", dedup.Progress{Topic: "b", Next: 1 << 40, Time: time.Now().Add(-retention)},
		dedup.Progress{Topic: "a", Partition: 10, Next: 3, CaughtUp: true},
		dedup.Progress{Topic: "a", Partition: 2, Next: 0},
		dedup.Progress{Topic: "a", Partition: math.MaxInt32, Next: math.MaxInt64})
	k.record("orders")
	k.recorded("orders", topics, dedup.Progress{Topic: "a", Partition: 2},
		dedup.Progress{Topic: "a", Partition: 10, Next: 3},
		dedup.Progress{Topic: "a", Partition: math.MaxInt32, Next: math.MaxInt64},
		dedup.Progress{Topic: "b", Next: 1 << 40})
	k.recorded("orders", []string{"b"}, dedup.Progress{Topic: "b", Next: 1 << 40})
	k.recorded("orders", []string{"c"})
	k.recorded("orders", nil)
	k.recorded("unknown", topics)
}

// progressRewound: An operator has rewound the group, so its consumer reads from there.
func progressRewound(k *kit) {
	topics := []string{"orders"}
	at := func(partition int32, next int64) dedup.Progress {
		return dedup.Progress{Topic: "orders", Partition: partition, Next: next}
	}
	caughtUp, dated := at(0, 100), at(1, 50)
	caughtUp.CaughtUp, dated.Time = true, time.Now().Add(-time.Minute)
	k.record("orders", caughtUp, dated)
	k.record("orders", at(0, 40), at(1, 60)) // one goes back, the other one on
	k.recorded("orders", topics, at(0, 40), at(1, 60))
	dated.Next, dated.Time = 10, time.Now().Add(-retention)
	k.record("orders", dated)
	k.recorded("orders", topics, at(0, 40), at(1, 10))
	for _, next := range []int64{41, 41, 0, 7} {
		caughtUp.Next = next
		k.record("orders", caughtUp)
		k.recorded("orders", topics, at(0, next), at(1, 10))
	}
}

func progressApart(k *kit) {
	all := []struct {
		scope string
		p     dedup.Progress
	}{
		{"orders", dedup.Progress{Topic: "orders", Partition: 1, Next: 11}},
		{"orders", dedup.Progress{Topic: "orders", Partition: 11, Next: 12}},
		{"orders", dedup.Progress{Topic: "a.orders", Partition: 1, Next: 13}},
		{"orders.a", dedup.Progress{Topic: "orders", Partition: 1, Next: 14}},
		{"Orders", dedup.Progress{Topic: "orders", Partition: 1, Next: 15}},
		{"orders", dedup.Progress{Topic: "Orders", Partition: 1, Next: 16}},
		{"orders:orders", dedup.Progress{Topic: "1", Partition: 1, Next: 17}},
	}
	for range 2 {
		for i := range all {
			all[i].p.Next += 100
			k.record(all[i].scope, all[i].p)
		}
		for _, a := range all {
			var want []dedup.Progress
			for _, b := range all {
				if a.scope == b.scope && a.p.Topic == b.p.Topic {
					want = append(want, b.p)
				}
			}
			k.recorded(a.scope, []string{a.p.Topic}, want...)
		}
	}
}

func progressDown(k *kit) {
	if k.h.lacks(Outage) {
		k.Skip("missing in the harness: outage")
	}
	p := k.recorderOf(k.h.Down(k))
	require.ErrorIs(k, p.RecordProgress(k.ctx, "orders", []dedup.Progress{{Topic: "orders",
		Next: 1}}), dedup.ErrUnavailable)
	known, err := p.Progress(k.ctx, "orders", "orders")
	require.ErrorIs(k, err, dedup.ErrUnavailable)
	require.Empty(k, known, "an error and an answer")
}
