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
	// Progress: [dedup.ProgressRecorder].
	Progress Ability = "progress"
	// Register: [dedup.Registrar].
	Register Ability = "registrations"
	// Tokens: Claim observes [dedup.Request.Token].
	Tokens Ability = "tokens of requests"
	// Outage: the store has a server that can be down.
	Outage Ability = "outage"
)

// Lists: [dedup.Lister]. A store without an index lacks this ability.
const Lists Ability = "lists"

// horizon is missing if Harness.Horizon is nil.
const horizon Ability = "horizon of its own"

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

func (h Harness) lacks(a Ability) bool {
	return slices.Contains(h.Missing, a) || a == horizon && h.Horizon == nil
}

// ready returns h with defaults.
func (h Harness) ready(t *testing.T) Harness {
	require.NotNil(t, h.New, "Harness.New is required")
	if !h.lacks(Outage) {
		require.NotNil(t, h.Down, "Harness.Down is required: methods of an unreachable store "+
			"must fail (R-19)")
	}
	if h.Sleep == nil {
		h.Sleep = time.Sleep //nolint:forbidigo // real time, by default
	}
	if h.Lease == 0 {
		h.Lease = 300 * time.Millisecond
	}
	return h
}
