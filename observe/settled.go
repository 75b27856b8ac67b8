package observe

import "context"

// SettledObserver gets every settled delivery, once for each time it was fetched. A settled
// delivery is recorded in the store or on the broker, even if its offset is not committed.
//
// After a batch that ended with an error, deliveries behind the failed one may be settled. They are
// fetched again and reported again, as duplicates.
type SettledObserver interface {
	ObserveSettled(context.Context, SettledEvent)
}

// Settlement is the kind of the end of a delivery.
type Settlement uint8

const (
	// SettledHandled means that the handler succeeded and that the store has recorded the success.
	SettledHandled Settlement = iota
	// SettledDuplicate means that the event was handled or dead-lettered before, or has a delayed
	// retry; see [DuplicateObserver].
	SettledDuplicate
	// SettledDeadLetter means that the event is in the dead-letter topic; see
	// [DeadLetterObserver].
	SettledDeadLetter
	// SettledRescheduled means that the event waits for a delayed retry in a retry topic or in the
	// store; see [RetryObserver].
	SettledRescheduled
	// SettledSkipped means a tombstone, a type without a handler, or a record without an ID; see
	// [SkippedObserver].
	SettledSkipped
	// SettledFallback means that the function of Router.NotFound got the message.
	SettledFallback
	// SettledUnprotected means that the handler succeeded without the store, so that no success is
	// recorded; see [UnprotectedObserver].
	SettledUnprotected

	settlements
)

// String returns the name of the settlement, which may be used as a metric label.
func (s Settlement) String() string {
	names := [...]string{"handled", "duplicate", "dead_letter", "rescheduled", "skipped", "fallback",
		"unprotected"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// SettledEvent has the number of deliveries of one partition that were settled one after the other.
type SettledEvent struct {
	Group string
	// Topic and Partition are those that the consumer fetched from: the retry topic for a copy.
	Topic     string
	Partition int32
	// Counts has the number of deliveries by [Settlement].
	Counts [settlements]int
	// Deferred reports that the events were deferred in the store (KeyOrdered) and ran from there.
	// Their deliveries have been counted as [SettledRescheduled] before.
	Deferred bool
}

// Total returns the sum of Counts.
func (e *SettledEvent) Total() (n int) {
	for _, c := range e.Counts {
		n += c
	}
	return n
}
