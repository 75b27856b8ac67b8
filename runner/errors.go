package runner

import (
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// The errors of a consumer.
var (
	// ErrFenced means that another process joined the group with the same [Config].InstanceID. Run
	// ends, so that the two do not take over from each other forever. No event is lost: the events
	// in flight are redelivered to the other process.
	ErrFenced = errors.New("another consumer has taken over this InstanceID")
	// ErrUnauthorized means that the brokers refuse the credentials, or a right that a start needs.
	// The error names the right and the command that grants it.
	ErrUnauthorized = errors.New("not authorized")
	// ErrStalled means that a partition rested for [Config].StallTimeout and the policy is
	// [ExitOnStall]. Offsets of settled events are committed. The event in flight is uncertain at
	// the next delivery.
	ErrStalled = errors.New("partition does not move")
	// ErrNotCommitted means that the brokers did not accept the offsets of handled events before
	// Run had to end. These events are delivered again. A store recognises the duplicates; handlers
	// without a store, such as [idem.Router.NotFound], run again.
	//
	// Without a handled event, ErrNotCommitted means that the brokers did not accept where a
	// partition begins. The next start chooses again, and with [Newest] or [LatestOnGap] records
	// that came in between are skipped.
	ErrNotCommitted = errors.New("offsets were not committed")
	// ErrRunTwice means that Run was called before. A runner runs once.
	ErrRunTwice = errors.New("consumer was run before")
	// ErrNotReady is matched by the errors of a consumer's Ready.
	ErrNotReady = errors.New("consumer is not ready")
	// ErrNotLive is matched by the errors of a consumer's Live.
	ErrNotLive = errors.New("consumer is not alive")
)

// TopicError means that topics are missing at the start. No record was consumed.
type TopicError struct {
	Topics []string // sorted
	// DeadLetters is set for dead-letter topics: create them, or set
	// [Config].CreateDeadLetterTopics.
	DeadLetters bool
	// Retries is set for the retry topics of a delay that a handler declares: create them, or set
	// [Config].CreateDeadLetterTopics.
	Retries bool
	// Fix has the commands that create the topics.
	Fix string

	created bool // by [Config].CreateDeadLetterTopics, and yet missing
}

// Error names the topics, and the commands that create them.
func (e *TopicError) Error() string {
	kind, or := "topics", ""
	switch {
	case e.Retries:
		kind, or = "retry topics", ", or set CreateDeadLetterTopics"
	case e.DeadLetters:
		kind, or = "dead-letter topics", ", or set CreateDeadLetterTopics"
	}
	if e.created {
		or = ""
	}
	names := strings.Join(e.Topics, ", ")
	text := fmt.Sprintf("%s do not exist: %s: create them%s", kind, names, or)
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// GapError means that records before the next one of a partition are gone. Either Kafka deleted
// records before they were consumed, or the topic was deleted and created again, or the log was
// cut. See [GapPolicy].
type GapError struct {
	Topic     string
	Partition int32
	Committed int64 // the next record to consume
	Oldest    int64 // the first record in the log
	Newest    int64 // the next record to be written
	// Cut means that the log was cut below Committed, mostly by the election of a leader that
	// lacked the last records. Other records may have taken their offsets since. Oldest and Newest
	// are the place of the cut. Only the runner on franz-go finds cuts.
	Cut bool
}

// Missing returns how many offsets were deleted before they were consumed. Missing is zero if the
// log ends before the committed offset, because the cause is unknown then.
func (e *GapError) Missing() int64 { return max(e.Oldest-e.Committed, 0) }

// Error names the gap.
func (e *GapError) Error() string {
	if e.Cut {
		return fmt.Sprintf("%s/%d: the log was cut at offset %d, below the next record %d, and other "+
			"records may have taken the offsets: was an unclean leader elected? Rewind the group to "+
			"offset %d or below, or choose OnGap",
			e.Topic, e.Partition, e.Newest, e.Committed, e.Newest)
	}
	if e.Committed > e.Newest {
		return fmt.Sprintf("%s/%d: committed offset %d is beyond the end of the log (%d to %d): "+
			"was the topic created anew?",
			e.Topic, e.Partition, e.Committed, e.Oldest, e.Newest)
	}
	return fmt.Sprintf(
		"%s/%d: %d offsets, %d to %d, were deleted before they were consumed (the log is %d to %d)",
		e.Topic, e.Partition, e.Missing(), e.Committed, e.Oldest-1, e.Oldest, e.Newest)
}

// OffsetsLostError means that committed offsets are gone, see [LostOffsetsPolicy]. No record was
// consumed.
type OffsetsLostError struct {
	Scope string
	// Known has the position of each partition according to the store.
	Known []dedup.Progress
}

// Error names the partitions and the choices.
func (e *OffsetsLostError) Error() string {
	var b strings.Builder
	for i, p := range e.Known {
		if i == 10 {
			fmt.Fprintf(&b, " and %d more", len(e.Known)-i)
			break
		}
		fmt.Fprintf(&b, " %s/%d at %d", p.Topic, p.Partition, p.Next)
	}
	return fmt.Sprintf("nothing is committed for partitions that scope %s has consumed:%s (set "+
		"Config.OnLostOffsets: "+
		"ResumeLost to continue there, StartLost to begin at Config.Start)", e.Scope, b.String())
}

// NotReadyError lists why a consumer is not ready. The error matches [ErrNotReady].
type NotReadyError struct {
	Reasons []string
}

// Error joins the reasons.
func (e *NotReadyError) Error() string {
	return ErrNotReady.Error() + ": " + strings.Join(e.Reasons, "; ")
}

// Is matches ErrNotReady.
func (e *NotReadyError) Is(target error) bool { return target == ErrNotReady }

// NotLiveError means that a consumer will do no more work. The error matches [ErrNotLive].
type NotLiveError struct {
	Reason string
}

// Error names the reason.
func (e *NotLiveError) Error() string { return ErrNotLive.Error() + ": " + e.Reason }

// Is matches ErrNotLive.
func (e *NotLiveError) Is(target error) bool { return target == ErrNotLive }
