package consumer

import (
	"context"
	"time"

	"github.com/idem-go/idem"
)

// RebalanceObserver is told when partitions come and go.
type RebalanceObserver interface {
	ObserveRebalance(context.Context, RebalanceEvent)
}

// RebalanceEvent is a change of our partitions.
type RebalanceEvent struct {
	Kind       RebalanceKind
	Partitions map[string][]int32 // by topic, ascending
	Generation int32
	// Cause is why, where sarama says so. Nil for an assignment, and where only some partitions were revoked.
	Cause error
}

// RebalanceKind is what happened to partitions.
type RebalanceKind uint8

const (
	// Assigned: they are ours now. A member without partitions is told of an empty set.
	Assigned RebalanceKind = iota
	// Revoked: given back in order, with their offsets committed.
	Revoked
	// Lost: another member may have them already, nothing was committed (K-11).
	Lost
)

// String names the kind; fit for a metric label.
func (k RebalanceKind) String() string { return enumName(int(k), "assigned", "revoked", "lost") }

// CommitObserver is told of every commit of offsets.
type CommitObserver interface {
	ObserveCommit(context.Context, CommitEvent)
}

// CommitEvent is one commit of all partitions that moved. It is told at the next commit, since errors come late.
type CommitEvent struct {
	Took       time.Duration
	Partitions int // that moved
	// Err is the first error that was seen while the commit was under way. sarama returns none from a commit: it is one from
	// ConsumerGroup.Errors(), see [GroupHandler.NoteError].
	Err error
}

// GapObserver is told of committed offsets that are no longer in the log.
type GapObserver interface {
	ObserveGap(context.Context, GapEvent)
}

// GapEvent is one such partition.
type GapEvent struct {
	GapError
	Policy GapPolicy
}

// TopicObserver is told when a topic that was consumed has been deleted (K-27), and when it is there again.
type TopicObserver interface {
	ObserveTopic(context.Context, TopicEvent)
}

// TopicEvent is such a topic. The others are consumed meanwhile.
type TopicEvent struct {
	Topic   string
	Missing bool // false: it is there again
}

// SilenceObserver is told when the group is joined anew because no records of a partition arrive any longer (K-15).
type SilenceObserver interface {
	ObserveSilence(context.Context, SilenceEvent)
}

// SilenceEvent is a partition that went silent.
type SilenceEvent struct {
	Topic     string
	Partition int32
	Seen      int64         // the end of the log as the fetching knew it; there are records beyond
	For       time.Duration // how long nothing came although there was something
}

// PartitionStallObserver is told when a partition has rested for StallTimeout, and when it moves again.
type PartitionStallObserver interface {
	ObservePartitionStall(context.Context, PartitionStallEvent)
}

// PartitionStallEvent is a partition that rests although it has something to do.
type PartitionStallEvent struct {
	Topic     string
	Partition int32
	For       time.Duration
	Over      bool // it moves again, or was given back
}

// ProgressObserver is told about every partition at every CommitInterval.
type ProgressObserver interface {
	ObserveProgress(context.Context, ProgressEvent)
}

// ProgressEvent is the state of a partition.
type ProgressEvent struct {
	Topic     string
	Partition int32
	Next      int64 // the watermark: what is marked for commit; -1 as long as nothing was settled in this assignment
	Pending   int   // fetched, and not yet covered by the watermark
	HighWater int64 // the next offset to be written, as of the last fetch
}

// observers are the hooks of this package, sorted once.
type observers struct {
	rebalance []RebalanceObserver
	commit    []CommitObserver
	gap       []GapObserver
	stall     []PartitionStallObserver
	progress  []ProgressObserver
	topic     []TopicObserver
	silence   []SilenceObserver
}

// sortObservers returns our hooks and the observers that package idem should have: those that implement one of its
// interfaces, and those that implement none at all, for it to complain about.
func sortObservers(list []idem.Observer) (ours observers, others []idem.Observer) {
	for _, o := range list {
		before := ours.count()
		ours.rebalance = pick(ours.rebalance, o)
		ours.commit = pick(ours.commit, o)
		ours.gap = pick(ours.gap, o)
		ours.stall = pick(ours.stall, o)
		ours.progress = pick(ours.progress, o)
		ours.topic = pick(ours.topic, o)
		ours.silence = pick(ours.silence, o)
		if ours.count() == before || isIdemObserver(o) {
			others = append(others, o)
		}
	}
	return ours, others
}

func pick[O any](list []O, o idem.Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}

func (s *observers) count() int {
	return len(s.rebalance) + len(s.commit) + len(s.gap) + len(s.stall) + len(s.progress) + len(s.topic) + len(s.silence)
}

func isIdemObserver(o idem.Observer) bool {
	switch o.(type) {
	case idem.HandledObserver, idem.DuplicateObserver, idem.DeadLetterObserver, idem.RetryObserver,
		idem.SkippedObserver, idem.ClaimObserver, idem.LedgerObserver, idem.StallObserver:
		return true
	}
	return false
}
