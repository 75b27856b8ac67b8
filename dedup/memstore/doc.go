// Package memstore is a store in the memory of one process. It is the exact reference of the contract: where another
// store has a choice, this one has the strictest answer.
//
// Use it in tests, in demos, and for events whose copies may be handled again after a restart. It is no store for a
// broker's consumer unless that is so: a restart forgets every event while the offsets stay committed.
//
// # Guarantees
//
// All of [dedup.Store], for the callers of one process only: two processes have two stores and both answer Fresh. A
// call is atomic as a whole and not only per key. There is no guarantee beyond the process. A consumer of a real broker
// refuses the store unless [Volatile] says that this is wanted (rule 31). It implements [dedup.Looker],
// [dedup.Volatiler], [dedup.Operator], [dedup.Lister] and [dedup.Deferrer].
//
// # Schema
//
// One map from [dedup.Key] to a record, compared byte by byte, and a heap of the records by the instant at which they
// expire. Deferred events are in a slice for each queue, and in a map by their keys; they do not expire. One lock guards all.
//
// # Expiry
//
// A record expires when its retention is over; a claim's retention begins when its lease ends, so that a claim never
// vanishes before it was Uncertain (rule 33). Each call of Claim also forgets a few expired records, at most twice as
// many as it asks for and sixteen more, and when the store is full, what expired makes room first. So the memory is
// bounded by [Capacity] and follows the load (H-21); there is no goroutine. What a person forgets with Forget is forgotten at
// once.
//
// Of what was forgotten the store keeps one instant for each scope: the latest at which a forgotten record was completed,
// released or out of its lease. An unknown event whose time is not after it is [dedup.TooOld] (rule 8); as long as nothing
// of a scope was forgotten, no event of it is. The host's clock is compared with the times of events.
//
// # Failure modes
//
// Full: a call of Claim, Discard, Import or Defer for more that is new than there is room fails as a whole, with an error that
// matches [dedup.ErrFull] and [dedup.ErrUnavailable]. Nothing is ever evicted to make room: that would let an event run
// twice. The other verbs need no room. No other failure is possible but that of a context that has ended.
//
// # Cost per message
//
// A few microseconds of one core for claim and completion together, and about 700 bytes for each remembered event with
// an ID of 36 characters. No round trip. List and Find look at every record, Due and Queues at every queue of their topic.
package memstore
