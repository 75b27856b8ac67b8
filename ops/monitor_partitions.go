package ops

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/observe"
)

// maxPartitions limits the kept partitions. Others are only counted.
const maxPartitions = 4096

// keptSamples of a partition, one in each sampleEvery.
const (
	keptSamples = 60
	sampleEvery = 5 * time.Second
)

type partitionID struct {
	Group     string
	Topic     string
	Partition int32
}

// partitionState is the state of an assigned partition.
type partitionState struct {
	partitionID
	Next, HighWater int64 // Next is -1 before the first settled record
	Pending         int
	Lag             int64 // -1: not known
	Told            time.Time
	Stalled         time.Duration // time without progress; 0 with progress
	Samples         []int64       // lag, oldest first

	sampled time.Time
}

// partitionTable has the partitions that are assigned.
type partitionTable struct {
	mu   sync.Mutex
	all  map[partitionID]*partitionState
	lag  int64 // of all partitions with a known lag
	more int   // that were not taken in
}

func (t *partitionTable) get(id partitionID) *partitionState {
	p := t.all[id]
	if p != nil {
		return p
	}
	if len(t.all) >= maxPartitions {
		t.more++
		return nil
	}
	if t.all == nil {
		t.all = make(map[partitionID]*partitionState)
	}
	p = &partitionState{partitionID: id, Next: -1, HighWater: -1, Lag: -1}
	t.all[id] = p
	return p
}

func (t *partitionTable) drop(id partitionID) {
	if p := t.all[id]; p != nil {
		t.lag -= max(p.Lag, 0)
		delete(t.all, id)
	}
}

func (p *partitionState) sample(now time.Time) {
	if now.Sub(p.sampled) < sampleEvery {
		return
	}
	p.sampled = now
	if len(p.Samples) == keptSamples {
		copy(p.Samples, p.Samples[1:])
		p.Samples = p.Samples[:keptSamples-1]
	}
	p.Samples = append(p.Samples, p.Lag)
}

// list returns copies of the partitions of a group, in order. With an empty group it returns those
// of all groups.
func (t *partitionTable) list(group string) (all []partitionState, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if group != "" && p.Group != "" && p.Group != group {
			continue
		}
		c := *p
		c.Samples = slices.Clone(p.Samples)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b partitionState) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all, t.more
}

// sum returns the lag of the partitions of a group, or of all groups, the number of assigned
// partitions, and the number of those without progress.
func (t *partitionTable) sum(group string) (lag int64, assigned, stalled int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.all {
		if group != "" && p.Group != "" && p.Group != group {
			continue
		}
		assigned++
		lag += max(p.Lag, 0)
		if p.Stalled > 0 {
			stalled++
		}
	}
	return lag, assigned, stalled
}

var (
	_ observe.RebalanceObserver      = (*Monitor)(nil)
	_ observe.ProgressObserver       = (*Monitor)(nil)
	_ observe.PartitionStallObserver = (*Monitor)(nil)
)

// ObserveProgress keeps the offsets of a partition.
func (m *Monitor) ObserveProgress(_ context.Context, e observe.ProgressEvent) {
	now := time.Now()
	m.parts.mu.Lock()
	if p := m.parts.get(partitionID{e.Group, e.Topic, e.Partition}); p != nil {
		lag, ok := e.Lag()
		if !ok {
			lag = -1
		}
		m.parts.lag += max(lag, 0) - max(p.Lag, 0)
		p.Next, p.HighWater, p.Pending, p.Lag, p.Told = e.Next, e.HighWater, e.Pending, lag, now
		p.sample(now)
	}
	if e.Last {
		m.parts.drop(partitionID{e.Group, e.Topic, e.Partition})
	}
	sum := m.parts.lag
	m.parts.mu.Unlock()
	at := m.moment()
	m.seconds.setLag(at.second, sum)
	m.minutes.setLag(at.minute, sum)
}

// ObserveRebalance keeps the set of assigned partitions.
func (m *Monitor) ObserveRebalance(_ context.Context, e observe.RebalanceEvent) {
	n := 0
	m.parts.mu.Lock()
	for topic, partitions := range e.Partitions {
		for _, id := range partitions {
			n++
			if e.Kind == observe.Assigned {
				m.parts.get(partitionID{e.Group, topic, id})
			} else {
				m.parts.drop(partitionID{e.Group, topic, id})
			}
		}
	}
	m.parts.mu.Unlock()
	m.noteRebalance(e, n)
}

// ObservePartitionStall keeps the set of stalled partitions.
func (m *Monitor) ObservePartitionStall(_ context.Context, e observe.PartitionStallEvent) {
	m.parts.mu.Lock()
	if p := m.parts.get(partitionID{e.Group, e.Topic, e.Partition}); p != nil {
		p.Stalled = e.For
		if e.Over {
			p.Stalled = 0
		}
	}
	m.parts.mu.Unlock()
	m.noteStall(e)
}
