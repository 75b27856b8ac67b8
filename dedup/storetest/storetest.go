package storetest

import (
	"slices"
	"testing"
)

// Run tests that the stores of h keep the contract of [dedup.Store] and of every [Ability] that is
// not missing, [Progress] and [Register] included.
func Run(t *testing.T, h Harness) {
	h = h.ready(t)
	for _, c := range slices.Concat(claimTests, leaseTests, endTests, crossedTests, positionTests,
		keyTests, failTests, randomTests, horizonTests, lookTests, progressTests,
		registerTests) {
		t.Run(c.name, func(t *testing.T) { runOne(t, h, c) })
	}
}

// RunOperator tests that the stores of h keep the contract of [dedup.Operator] and, unless
// [Lists] is missing, of [dedup.Lister]. RunOperator uses New, Peer, Sleep, Lease, Around and
// Missing of the harness, and Down unless Outage is missing.
//
// Only the records of claims are tested. [RunTx] tests those of transactions, which a store may
// keep elsewhere.
func RunOperator(t *testing.T, h Harness) {
	h = h.ready(t)
	for _, c := range slices.Concat(inspectTests, verbTests, listTests) {
		t.Run(c.name, func(t *testing.T) { runOne(t, h, c) })
	}
}
