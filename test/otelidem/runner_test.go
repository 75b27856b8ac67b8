package otelidem_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/observe"
	"github.com/stretchr/testify/require"
)

func (tm *telemetry) rebalance(group string, kind observe.RebalanceKind, ids ...int32) {
	tm.ObserveRebalance(tm.t.Context(), observe.RebalanceEvent{
		Group: group, Kind: kind, Partitions: map[string][]int32{"orders": ids},
	})
}

func (tm *telemetry) progress(group string, id int32, lag int64, last bool) {
	tm.ObserveProgress(tm.t.Context(), observe.ProgressEvent{
		Group: group, Topic: "orders", Partition: id, Next: 100, HighWater: 100 + lag, Pending: 3,
		Last: last,
	})
}

func (tm *telemetry) stall(group string, id int32, over bool) {
	tm.ObservePartitionStall(tm.t.Context(),
		observe.PartitionStallEvent{Group: group, Topic: "orders", Partition: id, Over: over})
}

// Revoked partitions are not reported, in any order of the events, and groups do not mix.
func TestGaugesOfPartitions(t *testing.T) {
	tm := newTelemetry(t)
	tm.rebalance("billing", observe.Assigned, 0, 1)
	tm.rebalance("mail", observe.Assigned, 0)
	tm.progress("billing", 0, 7, false)
	tm.progress("billing", 1, 5, false)
	tm.progress("mail", 0, 1000, false)
	tm.stall("billing", 1, false)
	require.Equal(t, 12, tm.sum("idem.partition.lag", "messaging.consumer.group.name=billing"))
	require.Equal(t, 7, tm.sum("idem.partition.lag", "messaging.consumer.group.name=billing",
		"messaging.destination.partition.id=0"))
	require.Equal(t, 1000, tm.sum("idem.partition.lag", "messaging.consumer.group.name=mail"))
	require.Equal(t, 6, tm.sum("idem.partition.pending", "messaging.consumer.group.name=billing"))
	require.Equal(t, 1, tm.sum("idem.partition.stalled"))
	require.Equal(t, 2, tm.sum("idem.partitions.assigned", "messaging.consumer.group.name=billing"))

	tm.stall("billing", 1, true)
	require.Equal(t, 0, tm.sum("idem.partition.stalled"))
	require.Equal(t, 1, tm.sum("idem.partition.stalls"))

	tm.progress("billing", 1, 5, true)
	require.Len(t, tm.series()["idem.partition.lag"], 2)
	tm.rebalance("billing", observe.Revoked, 1)
	tm.progress("billing", 1, 9, false) // late
	tm.stall("billing", 1, false)       // late
	require.Len(t, tm.series()["idem.partition.lag"], 2)
	require.Len(t, tm.series()["idem.partition.stalled"], 2)
	tm.rebalance("billing", observe.Lost, 0) // without a last report
	require.Len(t, tm.series()["idem.partition.lag"], 1)
	require.Equal(t, 0, tm.sum("idem.partitions.assigned", "messaging.consumer.group.name=billing"))
	require.Len(t, tm.series()["idem.partitions.assigned"], 2, "none is something to see")
	require.Equal(t, 1, tm.sum("idem.partitions.assigned", "messaging.consumer.group.name=mail"))
	for kind, want := range map[string]int{"assigned": 2, "revoked": 1, "lost": 1} {
		require.Equal(t, want, tm.sum("idem.rebalances", "idem.rebalance.kind="+kind), kind)
	}
}

// Two consumers of a group in one process share an observer: one may be assigned a partition a
// moment before the other one revokes it.
func TestGaugesAreHandedOver(t *testing.T) {
	tm := newTelemetry(t)
	tm.rebalance("billing", observe.Assigned, 0)
	tm.progress("billing", 0, 7, false)
	tm.rebalance("billing", observe.Assigned, 0) // by the other one
	tm.progress("billing", 0, 5, false)
	tm.progress("billing", 0, 7, true)
	tm.rebalance("billing", observe.Lost, 0)
	require.Equal(t, 5, tm.sum("idem.partition.lag"))
	require.Equal(t, 1, tm.sum("idem.partitions.assigned"))
	tm.progress("billing", 0, 5, true)
	tm.rebalance("billing", observe.Revoked, 0)
	require.Empty(t, tm.series()["idem.partition.lag"])
	require.Equal(t, 0, tm.sum("idem.partitions.assigned"))
}

// A runner that reports progress only.
func TestGaugesWithoutRebalances(t *testing.T) {
	tm := newTelemetry(t)
	tm.progress("billing", 0, 7, false)
	require.Equal(t, 7, tm.sum("idem.partition.lag"))
	tm.ObserveProgress(t.Context(),
		observe.ProgressEvent{Group: "billing", Topic: "orders", Next: -1, Begin: -1, Pending: 2})
	require.Empty(t, tm.series()["idem.partition.lag"], "not known")
	require.Equal(t, 2, tm.sum("idem.partition.pending"))
	tm.progress("billing", 0, 7, true)
	require.Empty(t, tm.series()["idem.partition.pending"])
}

func TestPartitionsAreBounded_G15(t *testing.T) {
	tm := newTelemetry(t)
	ids := make([]int32, 3000)
	for i := range ids {
		ids[i] = int32(i)
	}
	tm.rebalance("billing", observe.Assigned, ids...)
	for _, id := range ids {
		tm.progress("billing", id, 1, false)
	}
	require.Equal(t, 1000, tm.sum("idem.partition.lag"))
	require.Equal(t, 3000, tm.sum("idem.partitions.assigned"))
	for _, id := range ids {
		tm.progress("billing", id, 1, true)
	}
	tm.rebalance("billing", observe.Revoked, ids...)
	require.Empty(t, tm.series()["idem.partition.lag"])
	require.Equal(t, 0, tm.sum("idem.partitions.assigned"))
	for i := range 3000 {
		tm.rebalance(fmt.Sprintf("group-%d", i), observe.Assigned, 1)
	}
	require.Equal(t, 1000, len(tm.series()["idem.partitions.assigned"])) //nolint:testifylint // a thousand series are no message
}

func TestCommitsGapsTopicsSilences(t *testing.T) {
	tm := newTelemetry(t)
	tm.ObserveCommit(t.Context(),
		observe.CommitEvent{Group: "billing", Took: time.Second, Partitions: 2})
	tm.ObserveCommit(t.Context(),
		observe.CommitEvent{Group: "billing", Took: time.Second, Partitions: 2, Err: errBoom})
	const commits = "messaging.client.operation.duration"
	require.EqualValues(t, 2,
		tm.count(commits, "messaging.operation.name=commit", "messaging.operation.type=settle"))
	require.EqualValues(t, 1, tm.count(commits, "error.type=_OTHER"))
	tm.ObserveGap(t.Context(), observe.GapEvent{Group: "billing", Topic: "orders", Policy: "fail"})
	require.Equal(t, 1, tm.sum("idem.offset.gaps", "idem.gap.policy=fail"))
	tm.ObserveTopic(t.Context(), observe.TopicEvent{Group: "billing", Topic: "orders", Missing: true})
	require.Equal(t, 1, tm.sum("idem.topics.missing"))
	tm.ObserveTopic(t.Context(), observe.TopicEvent{Group: "billing", Topic: "orders"})
	require.Equal(t, 0, tm.sum("idem.topics.missing"))
	tm.ObserveSilence(t.Context(), observe.SilenceEvent{Group: "billing", Topic: "orders"})
	require.Equal(t, 1, tm.sum("idem.partition.silences"))
}

func TestCloseTakesGaugesAway(t *testing.T) {
	tm := newTelemetry(t)
	tm.rebalance("billing", observe.Assigned, 0)
	tm.progress("billing", 0, 7, false)
	require.NoError(t, tm.Close())
	require.NoError(t, tm.Close())
	require.Empty(t, tm.series()["idem.partition.lag"])
	require.Empty(t, tm.series()["idem.partitions.assigned"])
	require.Equal(t, 1, tm.sum("idem.rebalances"), "counters stay")
}
