package deadletters

import (
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// Verdict is the state of a dead letter's event in the stores. It decides about a replay.
type Verdict string

// The verdicts. [Action] has the steps that follow.
const (
	// SeenDead is an event that was given up. A replay reopens and publishes the event.
	SeenDead Verdict = "dead"
	// SeenReopened is a reopened event without a run yet. A replay publishes it again at the same
	// position.
	SeenReopened Verdict = "reopened"
	// SeenNever is an event without a record. A replay publishes it, and the store decides on
	// arrival.
	SeenNever Verdict = "never seen"
	// SeenTooOld is an event with a record that the store may have deleted. A person must decide.
	SeenTooOld Verdict = "too old"
	// SeenDeferred is an event that was given up at the head of its queue. A replay reopens the
	// event there.
	SeenDeferred Verdict = "deferred"
	// SeenNoID is a dead letter without identity. A replay publishes it, for a handler that was
	// corrected and may find the identity.
	SeenNoID Verdict = "no identity"
	// SeenDone is an event that was handled.
	SeenDone Verdict = "already done"
	// SeenDiscarded is an event that a person has given up for good.
	SeenDiscarded Verdict = "discarded"
	// SeenReplayed is a dead letter without identity that was published before.
	SeenReplayed Verdict = "replayed"
	// SeenPending is an event that is being handled, or waits for an attempt.
	SeenPending Verdict = "pending"
	// SeenWaiting is an event that was moved to a later attempt.
	SeenWaiting Verdict = "waiting"
	// SeenInFlight means that another dead letter of the same event and value is replayed.
	SeenInFlight Verdict = "same event"
	// SeenOther means that dead letters of one event differ. A person must choose.
	SeenOther Verdict = "other payload"
	// SeenOmitted is a dead letter without the value of its record.
	SeenOmitted Verdict = "value omitted"
	// SeenOften is an event that came back after each replay (T-08).
	SeenOften Verdict = "reopened often"
	// SeenGroup is a dead letter of another group.
	SeenGroup Verdict = "other group"
	// SeenScope is a dead letter of an event with another scope.
	SeenScope Verdict = "other scope"
	// SeenStray is a dead letter of a record with another topic than the configured source.
	SeenStray Verdict = "other topic"
	// SeenForeign is a record that is no dead letter.
	SeenForeign Verdict = "not a dead letter"
	// SeenTooLarge is a reopened event with a copy that is too large to be published.
	SeenTooLarge Verdict = "copy too large"
	// SeenNoTopic is a dead letter without an existing retry topic.
	SeenNoTopic Verdict = "no retry topic"
	// SeenConflict is an event with an ID that was handled with another content.
	SeenConflict Verdict = "another content"
	// SeenChanged is a line of an exported file that differs from its record in the topic in more
	// than the value.
	SeenChanged Verdict = "not as exported"
	// SeenGone is a line of an exported file, or a named place, without a record in the topic.
	SeenGone Verdict = "no record"
	// SeenEdit is a dead letter with a value that may not become the edited one.
	SeenEdit Verdict = "edit refused"
)

// Action is the step of a replay for a dead letter.
type Action uint8

// The actions.
const (
	ActSkip    Action = iota
	ActReopen         // reopen the key, publish at the position that this returns
	ActPublish        // publish at no position: too old for the store, it will not run
	ActForce          // publish at a position that is not asked for its age
	ActRecord         // publish, then record that this dead letter was
	ActUnblock        // reopen the key, let the deferred event run
)

var actionNames = [...]string{
	"skip", "reopen and publish", "publish", "publish, at any age", "publish and record",
	"reopen in its queue",
}

// String returns the name of the action.
func (a Action) String() string { return actionNames[a] }

// MaxGenerations limits how often an event is reopened or published again without the decision of a
// person (T-08).
const MaxGenerations = 3

// Decisions has the decisions of a person about dead letters that are otherwise left alone.
type Decisions struct {
	// Again is for events that were reopened or published again [MaxGenerations] times before.
	Again bool
	// Forgotten lets events run that the store does not know, however old. The store may have
	// deleted the record of a handled event.
	Forgotten bool
}

// Judged is a dead letter with a verdict.
type Judged struct {
	*Found
	Verdict Verdict
	// Note explains the verdict to people. May be empty.
	Note   string
	Action Action

	store    *NamedStore // where the event is known
	part     dedup.DeferredPartition
	deferred dedup.Deferred

	recordless bool // the event is deferred and has no record
	dead       bool // the store knows the event as dead, or as reopened and not run since
	// count is the key that counts a replay without reopening. Zero: the replay is counted already,
	// or is not to be counted.
	count dedup.Key
}

// foreign reports whether a dead letter names another group, topic or scope than the operator. Its
// headers can be forged, and must not reach events of other groups (G-03).
func (q *Queue) foreign(j *Judged) bool {
	switch l := j.DeadLetter; {
	case l.Group != q.Group:
		j.Verdict, j.Note = SeenGroup, "written by group "+l.Group
	case q.Source != "" && l.Message.Topic != q.Source:
		j.Verdict = SeenStray
		j.Note = "its record is of topic " + l.Message.Topic +
			": --dlq takes dead letters of all topics"
	case l.Key.ID != "" && l.Key.Scope != q.Scope:
		j.Verdict, j.Note = SeenScope, fmt.Sprintf(
			"of scope %q: give --scope if a handler of this group has it", l.Key.Scope,
		)
	default:
		return false
	}
	return true
}

func (j *Judged) omitted() {
	m := j.DeadLetter.Message
	j.Verdict, j.Action = SeenOmitted, ActSkip
	j.Note = fmt.Sprintf(
		"the record was too large to be copied: fetch it from %s/%d/%d", m.Topic, m.Partition,
		m.Offset,
	)
}

// Settled reports whether the event of the dead letter is settled, so that the dead letter may be
// deleted. With conflicts, a dead letter with another content than the handled event counts as
// settled.
func (j *Judged) Settled(conflicts bool) bool {
	switch j.Verdict {
	case SeenDone, SeenDiscarded, SeenReplayed:
		return true
	case SeenConflict:
		return conflicts
	default:
		return false
	}
}
