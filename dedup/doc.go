// Package dedup is the contract of an idempotency store: what a store remembers about an event, and what it answers
// when the event arrives again.
//
// A [Key] names an event by its business identity. A worker asks a [Store] for a claim on it and obeys the [Verdict]:
//
//	           Claim                      Complete
//	(nothing) ───────▶ claimed ─────────────────────────▶ done | dead | moved
//	    ▲                 │ Release: failed, or never started
//	    └─────────────────┤
//	                      │ the lease ends, or Release(Unknown)
//	                      └──────────────▶ the next claim is Uncertain
//
// Claim, complete and release are three operations on purpose. A detector with one ("have I seen this?") must write its
// mark before the effect and loses every event whose handler fails, or after it and lets two workers run at once.
//
// Stores that live in the database of the effects also implement [TxStore]: the mark and the effects are one transaction.
//
// The package imports the standard library only. The stores are packages of their own: memstore, pgstore, redisstore.
// Package storetest is the conformance kit that each of them, and any other implementation, must pass.
package dedup
