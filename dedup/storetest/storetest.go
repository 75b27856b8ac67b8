package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// Ability is a part of the contract that a store may lack. The tests of an ability in
// [Harness.Missing] are reported as skipped. All other abilities must be there.
type Ability string

// The abilities that a store may lack.
const (
	// Results: the store keeps [dedup.Completion.Result].
	Results Ability = "results"
	// Fingerprints: the store answers [dedup.Conflict].
	Fingerprints Ability = "fingerprints"
	// Reopen: [dedup.Operator].
	Reopen Ability = "reopen"
	// Check: [dedup.Checker].
	Check Ability = "check"
	// Look: [dedup.Looker].
	Look Ability = "look"
	// Outage: the store has a server that can be down.
	Outage Ability = "outage"
)

// Harness makes the stores of a test run and declares the missing abilities.
type Harness struct {
	// New returns an empty store, apart from all others. Release the resources of the store by
	// t.Cleanup. Required.
	New func(t testing.TB) dedup.Store
	// Down returns a store with an unreachable server: every method must fail with
	// [dedup.ErrUnavailable]. Required, unless Outage is missing.
	Down func(t testing.TB) dedup.Store
	// Peer returns a second client of the store of s, like that of another process. Nil: s is used
	// instead.
	Peer func(t testing.TB, s dedup.Store) dedup.Store
	// Sleep waits by the store's clock. Nil: time.Sleep.
	Sleep func(time.Duration)
	// Lease is the lease of the tests in which leases end. Zero: 300 ms.
	Lease time.Duration
	// Horizon sets the horizon of a scope in the store of s: events from before that time are
	// forgotten. Nil: the store never answers [dedup.TooOld], or has no horizon that can be set.
	// The tests that need a horizon are then skipped.
	Horizon func(t testing.TB, s dedup.Store, scope string, before time.Time)
	// Around runs each test. Nil: the test runs directly, in parallel with others. Use
	// synctest.Test for a store without a server.
	Around func(t *testing.T, test func(t *testing.T))
	// Missing lists the abilities that the store lacks. Empty: the store has all.
	Missing []Ability
}

// horizon is missing if Harness.Horizon is nil.
const horizon Ability = "horizon of its own"

func (h Harness) lacks(a Ability) bool {
	return slices.Contains(h.Missing, a) || a == horizon && h.Horizon == nil
}

// test is one test of the kit.
type test struct {
	name  string
	needs Ability // skipped if missing
	alone bool    // too heavy to run beside tests that measure time
	run   func(k *kit)
}

// Run tests that the stores of h keep the contract of [dedup.Store] and of every [Ability] that is
// not missing.
func Run(t *testing.T, h Harness) {
	h = h.ready(t)
	for _, c := range slices.Concat(claimTests, leaseTests, endTests, positionTests, keyTests,
		failTests, randomTests,
		horizonTests, lookTests) {
		t.Run(c.name, func(t *testing.T) { runOne(t, h, c) })
	}
}

// ready returns h with defaults.
func (h Harness) ready(t *testing.T) Harness {
	require.NotNil(t, h.New, "Harness.New is required")
	if !h.lacks(Outage) {
		require.NotNil(t, h.Down, "Harness.Down is required: methods of an unreachable store "+
			"must fail (R-19)")
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
		t.Skipf("Harness.Missing has %q", c.needs)
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
