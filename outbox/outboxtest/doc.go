// Package outboxtest is the conformance kit for tables of an outbox. The tests check the promises
// of [outbox.Store], of [outbox.Operator] and of adding entries in transactions, against a real
// database. The outboxes of this module and of module sqloutbox are tested with it.
//
// To test an outbox, write a function that returns a [Site] with empty tables, and call [Run]:
//
//	func TestConformance(t *testing.T) { outboxtest.Run(t, newSite) }
//
// The random tests print their seed; set IDEM_SEED to repeat a run.
package outboxtest
