package idemtype

// Class is the reason why an event became a dead letter, as one word. Its values are those of the
// header idem-error-class and may be used as metric labels.
type Class string

// The classes of dead letters.
const (
	// ClassPermanent means that the handler marked the error as permanent.
	ClassPermanent Class = "permanent"
	// ClassFailed means that the retries are used up.
	ClassFailed Class = "failed"
	// ClassRetryAfter means that the handler asked for a wait that no delayed retry allows.
	ClassRetryAfter Class = "retry-after"
	// ClassPanic means that the handler panicked or called runtime.Goexit, and that the retries are
	// used up.
	ClassPanic Class = "panic"
	// ClassTimeout means that the handler timed out, and that the retries are used up.
	ClassTimeout Class = "timeout"
	// ClassUncertain means that the effect may have happened and the policy is
	// DeadLetterUncertain.
	ClassUncertain Class = "uncertain"
	// ClassCrashLoop means that several workers died while they handled the event.
	ClassCrashLoop Class = "crash-loop"
	// ClassAlreadyDead means a copy of an event that was dead-lettered before.
	ClassAlreadyDead Class = "already-dead"
	// ClassConflict means that the store knows the event ID with another content.
	ClassConflict Class = "conflict"
	// ClassTooOld means that the event is older than the memory of the store.
	ClassTooOld Class = "too-old"
	// ClassUndecodable means that the value could not be decoded into the type of the handler.
	ClassUndecodable Class = "undecodable"
	// ClassNoID means that the record has no event ID, or an invalid one.
	ClassNoID Class = "no-event-id"
	// ClassAmbiguous means that the record has several IDs or types that differ.
	ClassAmbiguous Class = "ambiguous-id"
	// ClassNoType means that the record has no event type.
	ClassNoType Class = "no-event-type"
	// ClassNotJSON means that the ID or the type is a JSON field, and that the value is not JSON.
	ClassNotJSON Class = "not-json"
	// ClassNotACopy means that a record in a retry topic is not a copy made by Idem.
	ClassNotACopy Class = "not-a-copy"
)
