// Package idemtest tests handlers of Idem in the process of the test, without Kafka, a network or a
// container.
//
//	func TestPaid(t *testing.T) {
//		c := idemtest.Run(t, billing.Router())
//		c.Deliver(idemtest.Record{ID: "p-1", Type: "paid", Value: billing.Paid{Order: 7}})
//		c.Duplicate("p-1")
//		c.HandledOnce("p-1")
//	}
//
// [Run] starts a consumer on topics in memory. [Consumer.Deliver] writes records and returns when
// they are settled, or when they wait for something: a store that is down, a claim of another
// worker, a later time. So a test needs no polling.
//
// # Faults
//
// [Torture] looks for a schedule of crashes, copies and failing calls under which a handler leaves
// another world than in a run without faults. It prints the schedule as a story. The fakes of the
// test pass their calls to [Faults]:
//
//	func TestPaidSurvives(t *testing.T) {
//		idemtest.Torture(t, newShop, func(r *idem.Router, s *shop) {
//			idem.On(r, "paid", s.paid)
//		}, (*shop).state, idemtest.Records(idemtest.Record{ID: "p-1", Type: "paid", Value: paid{7}}))
//	}
//
// [TortureDo] does the same for a function with dedup.Do or dedup.DoTx, and [TortureHTTP] for HTTP
// handlers behind the middleware of package httpidem.
//
// # Time
//
// Retries wait, leases end, and records expire. Run such tests in a bubble of testing/synctest,
// where time passes without a wait. [Consumer.Advance] moves it. The stores in memory and in SQLite
// work in a bubble; a store behind a network does not.
//
// # Stores
//
// Without the option [Store], events are remembered in memory. Handlers with a transaction (OnTx,
// OnBatchTx) need a store with such transactions: sqlite.Open of package dedup/sqlstore/sqlite for
// *sql.Tx, or a database of the test.
package idemtest
