package idem

import "github.com/idem-go/idem/idemtype"

// This file names the types of package idemtype that users of this package need, so that they
// import one package.

// Producer publishes dead letters and copies for delayed retries, see [idemtype.Producer].
type Producer = idemtype.Producer

// Decoder decodes the values of messages and may ask another service, see [idemtype.Decoder].
type Decoder = idemtype.Decoder

// ReadTimeout limits one call of a [Decoder].
const ReadTimeout = idemtype.ReadTimeout

// Replay prepares a processor for records that its group has consumed before, see
// [idemtype.Replay].
type Replay = idemtype.Replay

// Class is the reason why an event became a dead letter, see [idemtype.Class].
type Class = idemtype.Class

// The classes of dead letters, see [idemtype.Class].
const (
	ClassPermanent   = idemtype.ClassPermanent
	ClassFailed      = idemtype.ClassFailed
	ClassRetryAfter  = idemtype.ClassRetryAfter
	ClassPanic       = idemtype.ClassPanic
	ClassTimeout     = idemtype.ClassTimeout
	ClassUncertain   = idemtype.ClassUncertain
	ClassCrashLoop   = idemtype.ClassCrashLoop
	ClassAlreadyDead = idemtype.ClassAlreadyDead
	ClassConflict    = idemtype.ClassConflict
	ClassTooOld      = idemtype.ClassTooOld
	ClassUndecodable = idemtype.ClassUndecodable
	ClassNoID        = idemtype.ClassNoID
	ClassAmbiguous   = idemtype.ClassAmbiguous
	ClassNoType      = idemtype.ClassNoType
	ClassNotJSON     = idemtype.ClassNotJSON
	ClassNotACopy    = idemtype.ClassNotACopy
)

// UncertainPolicy decides about an uncertain event, see [idemtype.UncertainPolicy].
type UncertainPolicy = idemtype.UncertainPolicy

// The values of UncertainPolicy.
const (
	RerunUncertain      = idemtype.RerunUncertain
	DeadLetterUncertain = idemtype.DeadLetterUncertain
)

// ConflictPolicy decides about a conflict, see [idemtype.ConflictPolicy].
type ConflictPolicy = idemtype.ConflictPolicy

// The values of ConflictPolicy.
const (
	SkipConflict       = idemtype.SkipConflict
	DeadLetterConflict = idemtype.DeadLetterConflict
)

// NoIDPolicy decides about a record without an event ID, see [idemtype.NoIDPolicy].
type NoIDPolicy = idemtype.NoIDPolicy

// The values of NoIDPolicy.
const (
	DeadLetterNoID = idemtype.DeadLetterNoID
	SkipNoID       = idemtype.SkipNoID
	RunNoID        = idemtype.RunNoID
)

// UnavailablePolicy lets a handler run while its store is down, see [idemtype.UnavailablePolicy].
type UnavailablePolicy = idemtype.UnavailablePolicy

// TooOldPolicy decides about an event that is older than the memory of the store, see
// [idemtype.TooOldPolicy].
type TooOldPolicy = idemtype.TooOldPolicy

// The values of TooOldPolicy.
const (
	RunTooOld        = idemtype.RunTooOld
	DeadLetterTooOld = idemtype.DeadLetterTooOld
	StopTooOld       = idemtype.StopTooOld
)
