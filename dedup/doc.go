// Package dedup is the contract of a store that remembers events: how a worker claims an event, and
// which answer a duplicate gets.
//
// A [Key] names an event by its business identity. A worker asks a [Store] for a claim on the key
// and acts on the [Verdict]:
//
//	             Claim                   Complete
//	(no record) ───────▶ claimed ─────────────────────▶ done | dead | rescheduled
//	    ▲                   │ Release: failed, or never started
//	    └───────────────────┤
//	                        │ the lease ends, or Release(Unknown)
//	                        └──────────────▶ the next claim is Uncertain
//
// Claim, complete and release are three operations. With one operation, a mark before the effect
// loses every event with a failing handler. A mark after the effect lets two workers run at
// once.
//
// # Call a function once per key
//
// [Do] and [DoTx] run a function once for each key and replay its result, without Kafka. They use a
// [Guard], which claims, renews and completes.
//
// # Write a store
//
// The stores of this module are memstore, pgstore, sqlstore, redisstore and dynamostore. To write
// another one:
//
//  1. Implement the four methods of [Store]. Call [CheckRequests] first in Claim, and report lost
//     claims with [Lost]. Package memstore is the shortest example.
//  2. Run the conformance kit, storetest.Run, with the other abilities in Harness.Missing, until it
//     passes.
//  3. Implement [Checker], unless the store has no server; a store without one implements
//     [Volatiler].
//  4. Implement [Looker], for look-ups without claims, and [Operator], for the operator's command,
//     the ops page and replays. Run storetest.RunOperator.
//  5. For OnTx handlers and [DoTx], implement [TxStore] and run storetest.RunTx.
//
// Each further ability is optional, and a store has it if it implements the interface:
//
//	KeyOrdered handlers                        Deferrer (storetest.RunDeferrer)
//	search by event ID, lists of stuck claims  Lister
//	differing copies, shown with their event   ConflictNoter
//	checks of identity and scope at the start  Registrar
//	retention in consumed time                 ProgressRecorder
//	a maximum size of results                  ResultLimiter
//	claims of concurrent callers in one call   CallSharer
//	warnings of another server, while in use   Watcher
//	look-up, shadow mode, a bound, and a       TxLooker, TxRunner, TxLimiter,
//	crash guard for transactional handlers     StartCounter
//	transactions of many events, replay of     TxChecker, Savepointer, TxKeeper:
//	errors over HTTP, the outbox               abilities of the lent transaction
//
// The package imports the standard library only.
package dedup
