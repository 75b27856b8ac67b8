package runner

import "fmt"

// StartPosition is where a group without committed offsets begins.
type StartPosition uint8

const (
	// Oldest begins with the first record in the log. No record is missed.
	Oldest StartPosition = iota
	// Newest skips the records that are in the log, and records written to a new partition before
	// the first assignment. The first assignment commits the end of the log before it handles a
	// record, so no later record is skipped.
	Newest
)

// GapPolicy decides about a partition with a committed offset that is no longer in the log, see
// [GapError] for the causes. Observers and the log get a report in any case. sarama's default, to
// jump without a report, is not offered.
type GapPolicy uint8

const (
	// FailOnGap ends Run with a [*GapError], for a person to look.
	FailOnGap GapPolicy = iota
	// EarliestOnGap continues with the first record in the log, or where the log was cut, if the log
	// has grown beyond the committed offset since.
	EarliestOnGap
	// LatestOnGap continues with the next record to be written. After a cut of a log that has grown
	// since, it continues with the next record to consume. A retry topic continues as with
	// EarliestOnGap, so no copy of an event is skipped.
	LatestOnGap
)

// LostOffsetsPolicy decides about a partition without a committed offset that, according to the
// store, this scope has consumed. The committed offsets are lost then. Causes are:
//   - Kafka deleted the offsets of a group that was empty for a week (offsets.retention.minutes).
//   - The group was renamed and kept the scope.
//   - A person reset the offsets.
//
// Beginning at the oldest record would deliver events that the store may have forgotten. Beginning
// at the newest would skip events. The policy works only with a store that records progress.
type LostOffsetsPolicy uint8

const (
	// RefuseLost ends Run with an [*OffsetsLostError], for a person to choose. A group that
	// inherits the scope of another group ([Config].Scope) has chosen: it begins at [Config].Start,
	// and the store recognises handled events.
	RefuseLost LostOffsetsPolicy = iota
	// ResumeLost continues at the position that the store has recorded, or at the nearest record.
	// Up to 10 s of events are delivered again and recognised as duplicates.
	ResumeLost
	// StartLost begins at [Config].Start.
	StartLost
)

// StallPolicy decides about a partition that has rested for StallTimeout, because a handler hangs.
// In any case the stall is logged and reported to observers, and the consumer is not ready.
//
// [LeaveGroup] and [ExitOnStall] end the context of the partition's handlers at once, with a cause
// that matches [idem.ErrPartitionLost]. A handler that continues is left behind after two seconds,
// and the event is uncertain at the next delivery. After 64 such handlers Run ends with
// [idem.ErrAbandoned]. The other partitions of the member are given back in order, within the
// grace.
//
// Both policies spare a partition if another member or a restart would not help. That is so while
// another worker handles the next event, a store or the producer is down, or a delayed retry is not
// due. Such a rest does not count: the partition has another StallTimeout afterwards. StallTimeout
// must be longer than the slowest handler.
type StallPolicy uint8

const (
	// ReportStall takes no further action. A person or a readiness probe has to act.
	ReportStall StallPolicy = iota
	// LeaveGroup leaves the group and joins again some seconds later. The partition moves to
	// another member, or comes back if there is no other member. With an InstanceID the member is
	// removed from the group; otherwise the partitions would rest until the session times out. With
	// a group of the caller's, as in consumer.NewGroupHandler, only the session ends.
	LeaveGroup
	// ExitOnStall ends Run with an error that matches [ErrStalled], so that the process is
	// restarted.
	ExitOnStall
)

// String names the position.
func (p StartPosition) String() string { return enumName(int(p), "oldest", "newest") }

// String names the policy.
func (p GapPolicy) String() string { return enumName(int(p), "fail", "earliest", "latest") }

// String names the policy.
func (p LostOffsetsPolicy) String() string { return enumName(int(p), "refuse", "resume", "start") }

// String names the policy.
func (p StallPolicy) String() string { return enumName(int(p), "report", "leave", "exit") }

func enumName(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}
