package dedup

import (
	"context"
	"time"
)

// Progress is how far a group has consumed one partition. Retention counts in consumed time, not in
// the time of a clock. After a group stood still for a week, unseen copies may wait in its topics.
// So the store must not forget in that week.
type Progress struct {
	Topic     string
	Partition int32
	// Next is the next offset to consume: all records below it are settled and committed.
	Next int64
	// Time is the timestamp of the last record below Next. Zero: unknown; the consumed time stays.
	Time time.Time
	// CaughtUp means that the partition had no unread record when its leader was asked, at most 15
	// s ago. The consumed time is then the present, on the store's clock. A store subtracts some
	// time, one minute for example, for the age of that answer and for records on their way.
	CaughtUp bool
}

// ProgressRecorder is an ability of a [Store] that forgets in consumed time.
type ProgressRecorder interface {
	// RecordProgress notes the progress of scope. A lower Next replaces a higher one: an operator
	// has rewound the group. Several instances of a group record their own partitions.
	RecordProgress(ctx context.Context, scope string, progress []Progress) error
	// Progress returns the recorded progress of scope in these topics, ordered by topic and
	// partition. Time and CaughtUp are not set. A consumer without its committed offsets uses
	// the result.
	Progress(ctx context.Context, scope string, topics ...string) ([]Progress, error)
}

// Registration describes a consumer before its first event. The store compares it with earlier
// ones, since a mistake in the identity would make every event new.
type Registration struct {
	Scope string
	Group string
	// Topics of the consumer.
	Topics []string
	// Descriptors describe by event type where tenant and ID come from. Equal descriptors have
	// equal texts, and different descriptors different ones.
	Descriptors map[string]string
	// NoOffsets means that the group has not committed an offset on these topics yet.
	NoOffsets bool
	// AcceptNewIdentity lets descriptors differ from those on record, and records them.
	AcceptNewIdentity bool
	// NewScope lets a group without offsets start in a new scope although the store knows the
	// topics under another one.
	NewScope bool
}

// Registrar is an ability of a [Store]: a record of consumers and identity descriptors.
type Registrar interface {
	// Register compares r with the record and replaces it. The error matches
	// [ErrIdentityChanged] if the descriptor of a type differs. The error matches
	// [ErrOtherScope] if NoOffsets is set and the store knows one of the topics under other
	// scopes only. After an error the record is unchanged. New types and topics, and those no
	// longer named, are no difference.
	Register(ctx context.Context, r Registration) error
}
