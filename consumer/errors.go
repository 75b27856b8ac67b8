package consumer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/IBM/sarama"
)

// The errors of a consumer.
var (
	// ErrFenced says that another process joined the group with our [Config].InstanceID. One of the two must go, so Run
	// ends instead of fighting over it (K-25). Nothing is lost: what was in flight is redelivered to the other.
	ErrFenced = errors.New("another consumer has taken over this InstanceID")
	// ErrUnauthorized says that the brokers refuse our credentials, or rights that a start needs. The error names the right and
	// the command that grants it.
	ErrUnauthorized = errors.New("not authorized")
	// ErrRunTwice says that Run was called before: a Consumer runs once.
	ErrRunTwice = errors.New("consumer was run before")
	// ErrStalled says that a partition rested for [Config].StallTimeout and that the policy is [ExitOnStall]. What was
	// settled is committed; the event in hand is met as one whose effect may have happened.
	ErrStalled = errors.New("partition does not move")
	// ErrNotCommitted says that the brokers did not accept the offsets of handled events before Run had to end. These events
	// are delivered again. A store recognises them; handlers without a store, such as [idem.Router.NotFound], repeat them.
	ErrNotCommitted = errors.New("offsets of handled events were not committed")
	// ErrNotReady is matched by what [Consumer.Ready] returns.
	ErrNotReady = errors.New("consumer is not ready")
	// ErrNotLive is matched by what [Consumer.Live] returns.
	ErrNotLive = errors.New("consumer is not alive")
)

// TopicError says that topics are missing at start (K-36). Nothing was consumed.
type TopicError struct {
	Topics []string // sorted
	// DeadLetters says that they are for dead letters: create them, or set [Config].CreateDeadLetterTopics.
	DeadLetters bool
	// Retries says that they are for later attempts of a delay that a handler declares: create them, or set
	// [Config].CreateDeadLetterTopics.
	Retries bool
	// Fix are the commands that create them.
	Fix string
}

// Error names the topics, and the commands that create them.
func (e *TopicError) Error() string {
	kind, or := "topics", ""
	switch {
	case e.Retries:
		kind, or = "topics for later attempts", ", or set CreateDeadLetterTopics"
	case e.DeadLetters:
		kind, or = "dead-letter topics", ", or set CreateDeadLetterTopics"
	}
	text := fmt.Sprintf("%s do not exist: %s: create them%s", kind, strings.Join(e.Topics, ", "), or)
	if e.Fix != "" {
		text += ": " + e.Fix
	}
	return text
}

// GapError says that the committed offset of a partition is not in the log any longer: records were deleted before they
// were consumed (K-17), or the topic was deleted and created again (K-28). See [GapPolicy].
type GapError struct {
	Topic     string
	Partition int32
	Committed int64 // the record to go on with
	Oldest    int64 // the first record there is
	Newest    int64 // the next record to be written
}

// Missing is how many offsets are gone without having been consumed; zero if the log is shorter than the committed
// offset says, as what happened is not known then.
func (e *GapError) Missing() int64 { return max(e.Oldest-e.Committed, 0) }

// Error names the gap.
func (e *GapError) Error() string {
	if e.Committed > e.Newest {
		return fmt.Sprintf("%s/%d: committed offset %d is beyond the end of the log (%d to %d): was the topic created anew?",
			e.Topic, e.Partition, e.Committed, e.Oldest, e.Newest)
	}
	return fmt.Sprintf("%s/%d: %d offsets, %d to %d, were deleted before they were consumed (the log is %d to %d)",
		e.Topic, e.Partition, e.Missing(), e.Committed, e.Oldest-1, e.Oldest, e.Newest)
}

// NotReadyError says why a consumer is not ready. It matches [ErrNotReady].
type NotReadyError struct {
	Reasons []string
}

// Error joins the reasons.
func (e *NotReadyError) Error() string {
	return ErrNotReady.Error() + ": " + strings.Join(e.Reasons, "; ")
}

// Is matches ErrNotReady.
func (e *NotReadyError) Is(target error) bool { return target == ErrNotReady }

// NotLiveError says why a consumer will do no more work. It matches [ErrNotLive].
type NotLiveError struct {
	Reason string
}

// Error names the reason.
func (e *NotLiveError) Error() string { return ErrNotLive.Error() + ": " + e.Reason }

// Is matches ErrNotLive.
func (e *NotLiveError) Is(target error) bool { return target == ErrNotLive }

// fatal returns the error to end Run with if no retry can help, else nil.
func fatal(err error) error {
	var gap *GapError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &gap), isLostOffsets(err), errors.Is(err, ErrUnauthorized):
		return err
	case errors.Is(err, sarama.ErrFencedInstancedId):
		return fmt.Errorf("%w: %w", ErrFenced, err)
	case isAny(err, sarama.ErrTopicAuthorizationFailed, sarama.ErrGroupAuthorizationFailed, sarama.ErrClusterAuthorizationFailed,
		sarama.ErrSASLAuthenticationFailed, sarama.ErrUnsupportedSASLMechanism, sarama.ErrIllegalSASLState):
		return fmt.Errorf("%w: %w", ErrUnauthorized, err)
	case isAny(err, sarama.ErrInvalidGroupId, sarama.ErrInvalidSessionTimeout):
		return err
	}
	return nil
}

// isLost reports whether a session that ended for this cause had lost its partitions before: another member may be at
// work on them (K-11).
func isLost(cause error) bool {
	return isAny(cause, sarama.ErrUnknownMemberId, sarama.ErrIllegalGeneration, sarama.ErrFencedInstancedId,
		sarama.ErrRebalanceTimedOut)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
