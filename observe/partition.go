package observe

import (
	"context"
	"time"
)

// This file has the events of a consumer: the owners of partitions, their progress, and commits. A
// processor does not report them.

// RebalanceObserver gets assignments and revocations of partitions.
type RebalanceObserver interface {
	ObserveRebalance(context.Context, RebalanceEvent)
}

// RebalanceEvent is a change of the partitions of this consumer.
type RebalanceEvent struct {
	Group      string
	Kind       RebalanceKind
	Partitions map[string][]int32 // by topic, ascending
	Generation int32
	// Cause is the reason, if the client knows one. Nil for an assignment, and if only some
	// partitions were revoked.
	Cause error
}

// RebalanceKind is the kind of a change of partitions.
type RebalanceKind uint8

const (
	// Assigned means that this consumer owns the partitions now. The set is empty for a member
	// without partitions.
	Assigned RebalanceKind = iota
	// Revoked means that this consumer gave the partitions back after a commit of their offsets.
	Revoked
	// Lost means that another member may own the partitions already. No offset was committed.
	Lost
)

// String returns the name of the kind, which may be used as a metric label.
func (k RebalanceKind) String() string {
	names := [...]string{"assigned", "revoked", "lost"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// CommitObserver gets every commit of offsets.
type CommitObserver interface {
	ObserveCommit(context.Context, CommitEvent)
}

// CommitEvent is one commit of all partitions with new marks. A consumer reports a commit at the
// next one, because errors arrive late.
type CommitEvent struct {
	Group      string
	Took       time.Duration
	Partitions int // partitions with new marks
	// Err is the first error during the commit. A commit of sarama returns no error. Err is then an
	// error that arrived in another way during the commit.
	Err error
}

// GapObserver gets committed offsets that are no longer in the log, and cuts of a log.
type GapObserver interface {
	ObserveGap(context.Context, GapEvent)
}

// GapEvent is a partition whose committed offset is no longer in the log, or whose log was cut.
type GapEvent struct {
	Group     string
	Topic     string
	Partition int32
	Committed int64 // the next record to consume
	Oldest    int64 // the first record in the log, or the place of the cut
	Newest    int64 // the offset of the next record to be written, or the place of the cut
	// Cut means that the log was cut below Committed. Other records may have taken the offsets
	// since. The range of the log is not known then. Only the runner on franz-go finds cuts.
	Cut    bool
	Policy string // reaction to the gap: "fail", "earliest" or "latest"
}

// Missing returns the number of offsets that were deleted before they were consumed. Zero after a
// cut, and if the log ends before the committed offset, because the cause is then unknown.
func (e GapEvent) Missing() int64 { return max(e.Oldest-e.Committed, 0) }

// TopicObserver gets consumed topics that were deleted or must not be read, and topics that can be
// read again. When a consumer ends, each topic that is still missing is reported once more, without
// Missing.
type TopicObserver interface {
	ObserveTopic(context.Context, TopicEvent)
}

// TopicEvent is a topic that was deleted or must not be read, or the end of that. The other topics
// are consumed meanwhile.
type TopicEvent struct {
	Group   string
	Topic   string
	Missing bool // false: the topic can be read again, or the consumer has ended
}

// SilenceObserver gets partitions without records although the log has some. The consumer then
// joins the group again.
type SilenceObserver interface {
	ObserveSilence(context.Context, SilenceEvent)
}

// SilenceEvent is a partition from which no records arrive.
type SilenceEvent struct {
	Group     string
	Topic     string
	Partition int32
	Seen      int64         // the end of the log as the fetcher knew it, or the offset of the next record
	For       time.Duration // time without a record
}

// PartitionStallObserver gets partitions without progress, and the end of each stall.
type PartitionStallObserver interface {
	ObservePartitionStall(context.Context, PartitionStallEvent)
}

// PartitionStallEvent is a partition that has pending records and no progress.
type PartitionStallEvent struct {
	Group     string
	Topic     string
	Partition int32
	For       time.Duration
	Over      bool // the partition has progress again, or was revoked
}

// ProgressObserver gets the state of every partition at every commit interval, and once more when
// the partition is revoked.
type ProgressObserver interface {
	ObserveProgress(context.Context, ProgressEvent)
}

// ProgressEvent is the state of a partition.
type ProgressEvent struct {
	Group     string
	Topic     string
	Partition int32
	Next      int64 // the watermark, marked for commit; -1 before the first settled record
	Fetched   int64 // the offset after the last fetched record; -1 before the first
	Pending   int   // number of fetched records that the watermark does not cover
	HighWater int64 // the offset of the next record to be written, as of the last fetch
	// Begin is the first offset of this assignment. Negative if the assignment began at the end of
	// the log and that end is not known.
	Begin int64
	// Last reports that the partition was revoked or lost. The next event follows after the next
	// assignment.
	Last bool
}

// Lag returns the number of offsets between the watermark and the end of the log, as of the last
// fetch. The result ok is false before both are known.
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
