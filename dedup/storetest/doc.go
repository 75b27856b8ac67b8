// Package storetest is the conformance kit for stores. The tests check the promises of package
// dedup through package dedup alone, so your store is tested like those of this module. Where
// the contract leaves a choice, every choice is accepted.
//
// To test a new store:
//
//  1. Write a function that returns an empty store. Each test calls the function, so give every
//     store a table, database or key prefix of its own.
//  2. Write a function that returns a store with an unreachable server, for example on a closed
//     port. A store without a server declares [Outage] as missing instead.
//  3. Call [Run], with every ability that the store does not have yet in Harness.Missing.
//  4. Implement the contract until Run succeeds. Then remove one entry of Missing after the other.
//  5. Call [RunOperator] for a [dedup.Operator], [RunDeferrer] for a [dedup.Deferrer], and [RunTx]
//     for a [dedup.TxStore]. A transactional store succeeds in both Run and RunTx.
//  6. Call [Bench] from a benchmark to compare the store with those of this module.
//
// Step 3 as code:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			New:     newStore,
//			Down:    unreachableStore,
//			Missing: []storetest.Ability{storetest.Reopen, storetest.Check, storetest.Look,
//				storetest.Progress, storetest.Register},
//		})
//	}
//
// Run also tests the [dedup.Checker], [dedup.Looker], [dedup.ProgressRecorder] and
// [dedup.Registrar]. These have no test: [dedup.Watcher], [dedup.CallSharer], [dedup.Volatiler],
// the time at which a store forgets what was consumed, and the loss of a server that had
// acknowledged a write.
//
// Tests that let leases end allow for a machine that stalls: they
// repeat a step with a longer lease. A store that is a [dedup.ResultLimiter] is tested up to its
// limit and one byte above.
//
// A store with a server has a second client for the tests: set Harness.Peer, so that claims race
// between two clients. A store without a server is tested without waiting: set Harness.Around to
// synctest.Test. The random tests print their seed: set IDEM_SEED to repeat a run, and IDEM_SOAK
// for ten times as many steps.
package storetest
