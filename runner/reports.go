package runner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idem-go/idem/observe"
)

// reportRebalance reports assigned, revoked or lost partitions.
func (g *Group) reportRebalance(
	sess Session, kind observe.RebalanceKind, partitions map[string][]int32,
	cause error,
) {
	own := make(map[string][]int32, len(partitions))
	for topic, ids := range partitions {
		own[topic] = slices.Sorted(slices.Values(ids))
	}
	attrs := []any{"partitions", own, "generation", sess.Generation()}
	if cause != nil && !errors.Is(cause, context.Canceled) {
		attrs = append(attrs, "cause", g.cfg.Text(cause))
	}
	if kind == observe.Lost {
		g.log.Warn("partitions lost", attrs...)
	} else {
		g.log.Info("partitions "+kind.String(), attrs...)
	}
	for _, o := range g.obs.Rebalance {
		o.ObserveRebalance(sess.Context(), observe.RebalanceEvent{
			Group: g.cfg.Group, Kind: kind, Partitions: own,
			Generation: sess.Generation(), Cause: cause,
		})
	}
}

// reportStall reports the begin or the end of a stall.
func (g *Group) reportStall(a *Assignment, rested time.Duration, over bool) {
	attrs := []any{"topic", a.Topic, "partition", a.Partition}
	if over {
		g.log.Info("partition moves again, or is given back", attrs...)
	} else {
		g.log.Warn("partition does not move",
			append(attrs, "for", rested.Round(time.Second), "pending", a.lane.Pending())...)
	}
	for _, o := range g.obs.Stall {
		o.ObservePartitionStall(context.Background(), observe.PartitionStallEvent{
			Group: g.cfg.Group, Topic: a.Topic, Partition: a.Partition, For: rested, Over: over,
		})
	}
}

// reportProgress reports the position of an assignment.
func (g *Group) reportProgress(ctx context.Context, a *Assignment, last bool) {
	if len(g.obs.Progress) == 0 {
		return
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	if a.last {
		return
	}
	a.last = last
	next, ok := a.lane.Watermark()
	if !ok {
		next = -1
	}
	begin := a.claim.InitialOffset()
	if begin < 0 {
		begin = a.times.begin(nil)
	}
	for _, o := range g.obs.Progress {
		o.ObserveProgress(ctx, observe.ProgressEvent{
			Group: g.cfg.Group, Topic: a.Topic, Partition: a.Partition, Last: last,
			Next: next, Fetched: a.times.fetched.Load(), Begin: begin,
			Pending: a.lane.Pending(), HighWater: a.claim.HighWaterMarkOffset(),
		})
	}
}
