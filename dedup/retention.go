package dedup

import (
	"context"
	"errors"
	"time"
)

// Retention counts consumed time, not the time of a wall clock: a group that stood still for a week has not yet seen the
// copies that wait in its topics, so its store may not forget in that week (rule 8).

// Progress says how far a group has consumed one partition.
type Progress struct {
	Topic     string
	Partition int32
	// Next is the offset that is consumed next: all below are settled and committed.
	Next int64
	// Time is the broker's time of the last record below Next. Zero if it is not known: such a progress moves no time.
	Time time.Time
	// CaughtUp says that nothing was waiting in the partition when its leader was asked, at most 15 s ago. Its consumed time is
	// then the present, on the store's clock, however long ago the last record came. A store dates it back, by one minute for
	// example, for the age of the answer and for records that are under way.
	CaughtUp bool
}

// ProgressRecorder is an ability of a [Store] that forgets in consumed time.
type ProgressRecorder interface {
	// RecordProgress notes how far scope has consumed. Progress of a partition that goes back (an operator rewound the
	// group) is taken as it is. Several instances of a group record their own partitions.
	RecordProgress(ctx context.Context, scope string, progress []Progress) error
	// Progress returns what is recorded of scope in these topics, ordered by topic and partition. Time and CaughtUp are
	// zero. A group whose committed offsets are gone is recognised by it.
	Progress(ctx context.Context, scope string, topics ...string) ([]Progress, error)
}

// Registration is what a consumer says about itself before its first event, so that a mistake in its identity is found
// before it makes every event new again (rules 7 and 14).
type Registration struct {
	Scope string
	Group string
	// Topics it consumes.
	Topics []string
	// Recipes says by event type where tenant and ID come from, in words that are equal if and only if the recipe is.
	Recipes map[string]string
	// NoOffsets says that the group has committed nothing yet on these topics.
	NoOffsets bool
	// AcceptNewIdentity lets recipes differ from those on record, and records them.
	AcceptNewIdentity bool
	// NewScope lets a group without offsets start in a new scope although the store knows its topics under another one.
	NewScope bool
}

// Registrar is an ability of a [Store]: to remember who consumes what and by which recipe events are told apart.
type Registrar interface {
	// Register compares r with what is on record and records it. The error matches [ErrIdentityChanged] if the recipe of
	// a type differs, and [ErrOtherScope] if NoOffsets is set and the store knows one of the topics under other scopes
	// only. Nothing is recorded with an error. Types and topics that are new, or no longer named, are no difference.
	Register(ctx context.Context, r Registration) error
}

// The errors of a [Registrar].
var (
	ErrIdentityChanged = errors.New("identity recipe has changed")
	ErrOtherScope      = errors.New("topics are known under another scope")
)
