package consumer

import (
	"github.com/idem-go/idem"
)

// What a consumer tells beside what its processor does. The types are those of package idem, so that whoever watches needs no Kafka
// client; the names here are the same types.
type (
	// RebalanceObserver is told when partitions come and go.
	RebalanceObserver = idem.RebalanceObserver
	// RebalanceEvent is a change of our partitions.
	RebalanceEvent = idem.RebalanceEvent
	// RebalanceKind is what happened to partitions.
	RebalanceKind = idem.RebalanceKind
	// CommitObserver is told of every commit of offsets.
	CommitObserver = idem.CommitObserver
	// CommitEvent is one commit. Its error is one from ConsumerGroup.Errors(), as sarama returns none from a commit; see
	// [GroupHandler.NoteError].
	CommitEvent = idem.CommitEvent
	// GapObserver is told of committed offsets that are no longer in the log.
	GapObserver = idem.GapObserver
	// GapEvent is one such partition.
	GapEvent = idem.GapEvent
	// TopicObserver is told when a topic that was consumed has been deleted (K-27), and when it is there again.
	TopicObserver = idem.TopicObserver
	// TopicEvent is such a topic.
	TopicEvent = idem.TopicEvent
	// SilenceObserver is told when the group is joined anew because no records of a partition arrive any longer (K-15).
	SilenceObserver = idem.SilenceObserver
	// SilenceEvent is a partition that went silent.
	SilenceEvent = idem.SilenceEvent
	// PartitionStallObserver is told when a partition has rested for StallTimeout, and when it moves again.
	PartitionStallObserver = idem.PartitionStallObserver
	// PartitionStallEvent is a partition that rests although it has something to do.
	PartitionStallEvent = idem.PartitionStallEvent
	// ProgressObserver is told about every partition at every CommitInterval, and once more when it is given back.
	ProgressObserver = idem.ProgressObserver
	// ProgressEvent is the state of a partition.
	ProgressEvent = idem.ProgressEvent
)

// What happened to partitions.
const (
	// Assigned: they are ours now. A member without partitions is told of an empty set.
	Assigned = idem.Assigned
	// Revoked: given back in order, with their offsets committed.
	Revoked = idem.Revoked
	// Lost: another member may have them already, nothing was committed (K-11).
	Lost = idem.Lost
)

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
		idem.SkippedObserver, idem.ClaimObserver, idem.StoreObserver, idem.StallObserver, idem.RunObserver, idem.CallObserver,
		idem.StoreCallObserver, idem.SettledObserver, idem.LostObserver:
		return true
	}
	return false
}
