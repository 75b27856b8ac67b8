package consumer

import (
	"github.com/idem-go/idem/runner"
)

// The policies of a [Config], which all runners share.
type (
	// StartPosition is where a group without committed offsets begins.
	StartPosition = runner.StartPosition
	// GapPolicy decides about a partition with a committed offset that is no longer in the log.
	GapPolicy = runner.GapPolicy
	// LostOffsetsPolicy decides about a partition without a committed offset that, according to the
	// store, this scope has consumed.
	LostOffsetsPolicy = runner.LostOffsetsPolicy
	// StallPolicy decides about a partition that has rested for StallTimeout.
	StallPolicy = runner.StallPolicy
	// TopicSpec has the settings of dead-letter and retry topics to create.
	TopicSpec = runner.TopicSpec
)

// The values of [StartPosition].
const (
	// Oldest begins with the first record in the log. No record is missed.
	Oldest = runner.Oldest
	// Newest skips the records that are in the log, and records written to a new partition before
	// the first assignment. The first assignment commits the end of the log before it handles a
	// record, so no later record is skipped.
	Newest = runner.Newest
)

// The values of [GapPolicy].
const (
	// FailOnGap ends Run with a [*GapError], for a person to look.
	FailOnGap = runner.FailOnGap
	// EarliestOnGap continues with the first record in the log, or where the log was cut, if the log
	// has grown beyond the committed offset since.
	EarliestOnGap = runner.EarliestOnGap
	// LatestOnGap continues with the next record to be written. A retry topic continues as with
	// EarliestOnGap, so no copy of an event is skipped.
	LatestOnGap = runner.LatestOnGap
)

// The values of [LostOffsetsPolicy].
const (
	// RefuseLost ends Run with an [*OffsetsLostError], for a person to choose. A group that
	// inherits the scope of another group begins at [Config].Start.
	RefuseLost = runner.RefuseLost
	// ResumeLost continues at the position that the store has recorded, or at the nearest record.
	ResumeLost = runner.ResumeLost
	// StartLost begins at [Config].Start.
	StartLost = runner.StartLost
)

// The values of [StallPolicy].
const (
	// ReportStall takes no further action. A person or a readiness probe has to act.
	ReportStall = runner.ReportStall
	// LeaveGroup leaves the group and joins again some seconds later. With [NewGroupHandler] only
	// the session ends, because the group is the caller's.
	LeaveGroup = runner.LeaveGroup
	// ExitOnStall ends Run with an error that matches [ErrStalled], so that the process is
	// restarted.
	ExitOnStall = runner.ExitOnStall
)

// The errors of a consumer.
var (
	// ErrFenced means that another process joined the group with the same [Config].InstanceID. Run
	// ends, so that the two do not take over from each other forever. No event is lost: the events
	// in flight are redelivered to the other process.
	ErrFenced = runner.ErrFenced
	// ErrUnauthorized means that the brokers refuse the credentials, or a right that a start needs.
	// The error names the right and the command that grants it.
	ErrUnauthorized = runner.ErrUnauthorized
	// ErrRunTwice means that Run was called before. A Consumer runs once.
	ErrRunTwice = runner.ErrRunTwice
	// ErrStalled means that a partition rested for [Config].StallTimeout and the policy is
	// [ExitOnStall]. Offsets of settled events are committed. The event in flight is uncertain at
	// the next delivery.
	ErrStalled = runner.ErrStalled
	// ErrNotCommitted means that the brokers did not accept the offsets of handled events before
	// Run had to end. These events are delivered again. A store recognises the duplicates; handlers
	// without a store, such as [idem.Router.NotFound], run again.
	ErrNotCommitted = runner.ErrNotCommitted
	// ErrNotReady is matched by the errors of [Consumer.Ready].
	ErrNotReady = runner.ErrNotReady
	// ErrNotLive is matched by the errors of [Consumer.Live].
	ErrNotLive = runner.ErrNotLive
)

// The types of errors, which all runners share.
type (
	// TopicError means that topics are missing at the start. No record was consumed.
	TopicError = runner.TopicError
	// GapError means that the committed offset of a partition is no longer in the log.
	GapError = runner.GapError
	// OffsetsLostError means that committed offsets are gone, see [LostOffsetsPolicy].
	OffsetsLostError = runner.OffsetsLostError
	// NotReadyError lists why a consumer is not ready. The error matches [ErrNotReady].
	NotReadyError = runner.NotReadyError
	// NotLiveError means that a consumer will do no more work. The error matches [ErrNotLive].
	NotLiveError = runner.NotLiveError
)
