// Package storetest is the conformance kit of the stores: a store is one if it passes [ClaimGroup], and a transactional one
// if it also passes [RunTx]. The kit asks through package dedup only, so that a store of your own is tested as those of
// this module are:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{New: newStore, Down: unreachableStore})
//	}
//
// It tests what the contract says and nothing else. Where the contract leaves a choice, each choice passes.
package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// Ability is something that a store may lack. What is named in [Harness.Missing] is reported as skipped; what is not
// named must be there.
type Ability string

// The abilities that a store may lack.
const (
	// Results: keeping [dedup.Completion.Result].
	Results Ability = "results"
	// Fingerprints: finding [dedup.Conflict].
	Fingerprints Ability = "fingerprints"
	// Reopen: [dedup.Operator].
	Reopen Ability = "reopen"
	// Check: [dedup.Checker].
	Check Ability = "check"
	// Look: [dedup.Looker].
	Look Ability = "look"
	// Outage: a store that lives in this process has no server that could be down.
	Outage Ability = "outage"
)

// Harness says how to make a store and what it can do.
type Harness struct {
	// New returns an empty store of its own. What it needs is cleaned up by t.Cleanup. Required.
	New func(t testing.TB) dedup.Store
	// Down returns a store whose server cannot be reached: every verb must fail with dedup.ErrUnavailable. Required,
	// unless Outage is missing.
	Down func(t testing.TB) dedup.Store
	// Peer returns a second client of the store of s, as another process would have it. Nil: s is its own peer.
	Peer func(t testing.TB, s dedup.Store) dedup.Store
	// Sleep lets time pass for the store. Nil: time.Sleep.
	Sleep func(time.Duration)
	// Lease is the short lease of the tests in which leases end. Default 300 ms; zero means the default.
	Lease time.Duration
	// Horizon tells the store of s that it has forgotten what a scope handled of records from before that time. Nil for
	// a store that never answers [dedup.TooOld], or cannot be told: the tests that need it are then skipped by name.
	Horizon func(t testing.TB, s dedup.Store, scope string, before time.Time)
	// Around runs each test; nil: at once. A store without a server is tested in no time with synctest.Test.
	Around func(t *testing.T, test func(t *testing.T))
	// Missing names what the store cannot do. Empty: it can do everything.
	Missing []Ability
}

// horizon is missing where Harness.Horizon is.
const horizon Ability = "horizon of its own"

func (h Harness) lacks(a Ability) bool {
	return slices.Contains(h.Missing, a) || a == horizon && h.Horizon == nil
}

// test is one test of the kit.
type test struct {
	name  string
	needs Ability // skipped if this is missing
	alone bool    // too heavy to run beside tests that measure time
	run   func(k *kit)
}

// Run tests that the stores of h keep the contract of [dedup.Store] and of the abilities they do not lack.
func Run(t *testing.T, h Harness) {
	h = h.ready(t)
	for _, c := range slices.Concat(claimTests, leaseTests, endTests, positionTests, keyTests, failTests, randomTests,
		horizonTests, lookTests) {
		t.Run(c.name, func(t *testing.T) { runOne(t, h, c) })
	}
}

// ready is h with its defaults.
func (h Harness) ready(t *testing.T) Harness {
	require.NotNil(t, h.New, "Harness.New is required")
	if !h.lacks(Outage) {
		require.NotNil(t, h.Down, "Harness.Down is required: a store must be seen failing closed (R-19)")
	}
	if h.Sleep == nil {
		h.Sleep = time.Sleep //nolint:forbidigo // real time, where the harness has none of its own
	}
	if h.Lease == 0 {
		h.Lease = 300 * time.Millisecond
	}
	return h
}

func runOne(t *testing.T, h Harness, c test) {
	if c.needs != "" && h.lacks(c.needs) {
		t.Skipf("the store has no %s, says its harness", c.needs)
	}
	if h.Around != nil { // a bubble cannot hold parallel tests
		h.Around(t, func(t *testing.T) { c.run(newKit(t, h)) })
		return
	}
	if !c.alone {
		t.Parallel()
	}
	c.run(newKit(t, h))
}
