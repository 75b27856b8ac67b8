package idem

import (
	"context"
	"time"
)

// This file is what a runner has to tell: who owns which partition, how far it has come, what it commits. Package consumer
// tells it; a runner on another client may tell the same with the same types, so that whoever watches needs to know no
// client. A processor does not tell it.

// RebalanceObserver is told when partitions come and go.
type RebalanceObserver interface {
	ObserveRebalance(context.Context, RebalanceEvent)
}

// RebalanceEvent is a change of our partitions.
type RebalanceEvent struct {
	Group      string
	Kind       RebalanceKind
	Partitions map[string][]int32 // by topic, ascending
	Generation int32
	// Cause is why, where the client says so. Nil for an assignment, and where only some partitions were revoked.
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
func (k RebalanceKind) String() string {
	names := [...]string{"assigned", "revoked", "lost"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// CommitObserver is told of every commit of offsets.
type CommitObserver interface {
	ObserveCommit(context.Context, CommitEvent)
}

// CommitEvent is one commit of all partitions that moved. It is told at the next commit, since errors come late.
type CommitEvent struct {
	Group      string
	Took       time.Duration
	Partitions int // that moved
	// Err is the first error that was seen while the commit was under way. Where the client returns none from a commit
	// (sarama), it is one that came by another way meanwhile.
	Err error
}

// GapObserver is told of committed offsets that are no longer in the log.
type GapObserver interface {
	ObserveGap(context.Context, GapEvent)
}

// GapEvent is one such partition.
type GapEvent struct {
	Group     string
	Topic     string
	Partition int32
	Committed int64  // the record to go on with
	Oldest    int64  // the first record there is
	Newest    int64  // the next record to be written
	Policy    string // what is done about it: "fail", "earliest", "latest"
}

// Missing is how many offsets are gone without having been consumed; zero if the log is shorter than the committed
// offset says, as what happened is not known then.
func (e GapEvent) Missing() int64 { return max(e.Oldest-e.Committed, 0) }

// TopicObserver is told when a topic that was consumed has been deleted (K-27), and when it is there again.
type TopicObserver interface {
	ObserveTopic(context.Context, TopicEvent)
}

// TopicEvent is such a topic. The others are consumed meanwhile.
type TopicEvent struct {
	Group   string
	Topic   string
	Missing bool // false: it is there again
}

// SilenceObserver is told when the group is joined anew because no records of a partition arrive any longer (K-15).
type SilenceObserver interface {
	ObserveSilence(context.Context, SilenceEvent)
}

// SilenceEvent is a partition that went silent.
type SilenceEvent struct {
	Group     string
	Topic     string
	Partition int32
	Seen      int64         // the end of the log as the fetching knew it; there are records beyond
	For       time.Duration // how long nothing came although there was something
}

// PartitionStallObserver is told when a partition has rested too long, and when it moves again.
type PartitionStallObserver interface {
	ObservePartitionStall(context.Context, PartitionStallEvent)
}

// PartitionStallEvent is a partition that rests although it has something to do.
type PartitionStallEvent struct {
	Group     string
	Topic     string
	Partition int32
	For       time.Duration
	Over      bool // it moves again, or was given back
}

// ProgressObserver is told about every partition at every commit interval, and once more when it is given back.
type ProgressObserver interface {
	ObserveProgress(context.Context, ProgressEvent)
}

// ProgressEvent is the state of a partition.
type ProgressEvent struct {
	Group     string
	Topic     string
	Partition int32
	Next      int64 // the watermark: what is marked for commit; -1 as long as nothing was settled in this assignment
	Fetched   int64 // the offset after the last record that was fetched; -1 as long as there is none
	Pending   int   // fetched, and not yet covered by the watermark
	HighWater int64 // the next offset to be written, as of the last fetch
	// Begin is where this assignment began to consume; negative if it was at an end of the log that is not known.
	Begin int64
	// Last says that the partition is given back or lost: nothing more will be told of it until it is assigned again.
	Last bool
}

// Lag is how many offsets are not yet covered by the watermark, as of the last fetch: up to the end of the log. ok is false if that is not
// known yet.
func (e ProgressEvent) Lag() (offsets int64, ok bool) {
	next := e.Next
	if next < 0 {
		next = e.Begin
	}
	if next < 0 {
		return 0, false
	}
	return max(e.HighWater-next, 0), true
}
