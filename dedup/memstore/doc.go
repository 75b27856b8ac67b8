// Package memstore is a store in the memory of one process. It is the reference of the contract:
// where the contract leaves a choice, memstore gives the strictest answer.
//
// Use memstore in tests. A restart forgets every event while the offsets stay committed, so that
// another delivery runs again. Package dedup/sqlstore/sqlite is the store for one process: one
// file, and no server.
//
// # Guarantees
//
// All of [dedup.Store], for the callers of one process only: two processes have two stores, and
// both answer Fresh. A call is atomic as a whole, not only per key. A consumer of a real broker
// refuses the store without the option [Volatile].
//
// The store is a [dedup.Looker], [dedup.Volatiler], [dedup.Operator], [dedup.Lister],
// [dedup.ConflictNoter] and [dedup.Deferrer].
//
// # Schema
//
// One map from [dedup.Key] to a record, compared byte by byte, and a heap of the records by
// their time of expiry. Deferred events are in a slice for each queue, and in a map by their
// keys. Deferred events do not expire. One lock guards all.
//
// # Expiry
//
// A record expires when its retention is over. The retention of a claimed record begins when the
// lease ends, so that a claim never disappears before the event was Uncertain.
//
// Each call of Claim also forgets expired records: at most twice the number of requests, and
// sixteen more. A full store forgets expired records first. So the memory is bounded by
// [Capacity] and follows the load, without a goroutine. Forget removes a record at once.
//
// For each scope the store keeps one time: the latest completion, release or end of lease of a
// forgotten record. An unknown event from that time or before is [dedup.TooOld]. As long as no
// record of a scope has expired, no event of that scope is TooOld. The host's clock is compared
// with the times of events.
//
// # Failure modes
//
// Full: a call of Claim, Discard, Import or Defer fails as a whole if the room is too small. The
// error matches [dedup.ErrFull] and [dedup.ErrUnavailable]. The store never evicts a record to
// make room, since that event could run twice. Other calls need no room. Their only failure is a
// context that has ended.
//
// # Cost per message
//
// A few microseconds of one core for claim and completion together, and about 700 bytes for each
// event with an ID of 36 characters. No round trip. List and Find read every record, Due and Queues
// every queue of their topic.
package memstore
