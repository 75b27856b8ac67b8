package otelidem

import (
	"context"
	"strconv"
	"sync"

	"github.com/idem-go/idem/observe"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// This file counts the events of consumers about groups and partitions.
var (
	_ observe.RebalanceObserver      = (*Observer)(nil)
	_ observe.CommitObserver         = (*Observer)(nil)
	_ observe.GapObserver            = (*Observer)(nil)
	_ observe.TopicObserver          = (*Observer)(nil)
	_ observe.SilenceObserver        = (*Observer)(nil)
	_ observe.PartitionStallObserver = (*Observer)(nil)
	_ observe.ProgressObserver       = (*Observer)(nil)
)

// maxPartitions bounds the partitions with gauges of their own, and maxGroups the groups. Further
// partitions are only counted as assigned.
const (
	maxPartitions = 1000
	maxGroups     = 1000
)

// runnerPart has the instruments of consumers, and their last reports.
type runnerPart struct {
	operation                               metric.Float64Histogram
	stalls, rebalances, gaps, silences      metric.Int64Counter
	missing                                 metric.Int64UpDownCounter
	assigned, lag, pending, partitionStalls metric.Int64ObservableGauge

	commitSets sets[commitLabels]
	eventSets  sets[eventLabels]

	mu         sync.Mutex
	groups     map[string]*groupState
	partitions map[partition]*partitionState
}

// groupState is the last report on a group by its consumers in this process.
type groupState struct {
	labels   *labelSet
	assigned map[partition]int // number of consumers of this process: one may hand over to another
	over     int               // assigned partitions that are not in the map
}

type partition struct {
	group, topic string
	id           int32
}

// partitionState has the gauges of a partition.
type partitionState struct {
	labels       *labelSet
	lag, pending int64 // -1: unknown
	stalled      int64
}

func (p *runnerPart) init(b *builder) {
	p.operation = b.seconds(&mOperation)
	p.assigned, p.lag, p.pending, p.partitionStalls = b.gauge(&mAssigned), b.gauge(&mLag),
		b.gauge(&mPending), b.gauge(&mStalled)
	p.stalls, p.rebalances, p.gaps, p.missing, p.silences = b.counter(&mPartitionStalls),
		b.counter(&mRebalances), b.counter(&mGaps), b.upDown(&mTopicsMissing), b.counter(&mSilences)
	p.commitSets.build = commitLabels.attributes
	p.eventSets.build, p.eventSets.other = eventLabels.attributes, eventLabels.bounded
	p.groups, p.partitions = make(map[string]*groupState), make(map[partition]*partitionState)
	b.watch(p.collect, p.assigned, p.lag, p.pending, p.partitionStalls)
}

// collect reports the gauges. Revoked partitions are not reported, and disappear from the next
// export.
func (p *runnerPart) collect(_ context.Context, to metric.Observer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		to.ObserveInt64(p.assigned, int64(len(g.assigned)+g.over), g.labels.observe...)
	}
	for _, s := range p.partitions {
		if s.lag >= 0 {
			to.ObserveInt64(p.lag, s.lag, s.labels.observe...)
		}
		if s.pending >= 0 {
			to.ObserveInt64(p.pending, s.pending, s.labels.observe...)
		}
		to.ObserveInt64(p.partitionStalls, s.stalled, s.labels.observe...)
	}
	return nil
}

// group returns the state of a group, or nil if there are too many. p.mu is held.
func (p *runnerPart) group(name string) *groupState {
	g, ok := p.groups[name]
	if !ok && len(p.groups) < maxGroups {
		g = &groupState{
			assigned: make(map[partition]int),
			labels:   newLabelSet(groupLabels{group: name}.attributes()),
		}
		p.groups[name] = g
	}
	return g
}

// partition returns the state of a partition, or nil if there are too many. p.mu is held.
func (p *runnerPart) partition(of partition) *partitionState {
	s, ok := p.partitions[of]
	if !ok && len(p.partitions) < maxPartitions {
		s = &partitionState{lag: -1, pending: -1, labels: newLabelSet([]attribute.KeyValue{
			attribute.String(attrSystem, kafka), attribute.String(attrGroup, of.group),
			attribute.String(attrTopic, of.topic),
			attribute.String(attrPartition, strconv.Itoa(int(of.id))),
		})}
		p.partitions[of] = s
	}
	return s
}

// ObserveRebalance counts the change, and records the assignment.
func (o *Observer) ObserveRebalance(ctx context.Context, e observe.RebalanceEvent) {
	p := &o.runner
	set := p.eventSets.get(eventLabels{group: e.Group, key: attrRebalance, value: e.Kind.String()})
	p.rebalances.Add(ctx, 1, set.add...)
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.group(e.Group)
	if g == nil {
		return
	}
	for topic, ids := range e.Partitions {
		for _, id := range ids {
			if at := (partition{e.Group, topic, id}); e.Kind == observe.Assigned {
				g.assign(at)
			} else if g.revoke(at) {
				delete(p.partitions, at)
			}
		}
	}
}

func (g *groupState) assign(at partition) {
	if _, known := g.assigned[at]; !known && len(g.assigned) >= maxPartitions {
		g.over++
		return
	}
	g.assigned[at]++
}

// revoke reports whether no consumer of this process owns the partition any more.
func (g *groupState) revoke(at partition) bool {
	n, known := g.assigned[at]
	switch {
	case !known:
		g.over = max(g.over-1, 0)
	case n > 1:
		g.assigned[at] = n - 1
		return false
	default:
		delete(g.assigned, at)
	}
	return true
}

// ObserveProgress records the state of a partition for the gauges. Late progress of a revoked
// partition is ignored.
func (o *Observer) ObserveProgress(_ context.Context, e observe.ProgressEvent) {
	p, at := &o.runner, partition{e.Group, e.Topic, e.Partition}
	p.mu.Lock()
	defer p.mu.Unlock()
	owners, known := p.owners(at)
	if e.Last {
		if owners < 2 { // else another consumer owns it already
			delete(p.partitions, at)
		}
		return
	}
	if known && owners == 0 {
		return
	}
	if s := p.partition(at); s != nil {
		s.lag, s.pending = -1, int64(e.Pending)
		if lag, ok := e.Lag(); ok {
			s.lag = lag
		}
	}
}

// owners returns the number of consumers that own the partition. known is false if no rebalance of
// the group was reported. p.mu is held.
func (p *runnerPart) owners(at partition) (n int, known bool) {
	g, known := p.groups[at.group]
	if !known {
		return 0, false
	}
	if g.over > 0 && g.assigned[at] == 0 {
		return 1, true // it may be one of those that are only counted
	}
	return g.assigned[at], true
}

// ObservePartitionStall counts a stall, and records it for the gauge.
func (o *Observer) ObservePartitionStall(ctx context.Context, e observe.PartitionStallEvent) {
	p, at := &o.runner, partition{e.Group, e.Topic, e.Partition}
	if !e.Over {
		p.stalls.Add(ctx, 1, p.eventSets.get(eventLabels{group: e.Group, topic: e.Topic}).add...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Over {
		if s, ok := p.partitions[at]; ok {
			s.stalled = 0
		}
		return
	}
	if owners, known := p.owners(at); known && owners == 0 {
		return
	}
	if s := p.partition(at); s != nil {
		s.stalled = 1
	}
}

// commitLabels are the labels of a commit of offsets.
type commitLabels struct{ group, err string }

func (l commitLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrOperation, "commit"),
		attribute.String(attrOperationType, "settle"),
		attribute.String(attrGroup, l.group), attribute.String(attrErrorType, l.err),
	}
}

// ObserveCommit measures a commit.
func (o *Observer) ObserveCommit(ctx context.Context, e observe.CommitEvent) {
	o.runner.operation.Record(ctx, e.Took.Seconds(),
		o.runner.commitSets.get(commitLabels{e.Group, errorType(e.Err)}).record...)
}

// ObserveGap counts a gap.
func (o *Observer) ObserveGap(ctx context.Context, e observe.GapEvent) {
	set := o.runner.eventSets.get(eventLabels{
		group: e.Group, topic: e.Topic, key: attrGapPolicy, value: e.Policy,
	})
	o.runner.gaps.Add(ctx, 1, set.add...)
}

// ObserveTopic counts missing topics.
func (o *Observer) ObserveTopic(ctx context.Context, e observe.TopicEvent) {
	n := int64(-1)
	if e.Missing {
		n = 1
	}
	o.runner.missing.Add(ctx, n,
		o.runner.eventSets.get(eventLabels{group: e.Group, topic: e.Topic}).add...)
}

// ObserveSilence counts a partition that became silent.
func (o *Observer) ObserveSilence(ctx context.Context, e observe.SilenceEvent) {
	o.runner.silences.Add(ctx, 1,
		o.runner.eventSets.get(eventLabels{group: e.Group, topic: e.Topic}).add...)
}
