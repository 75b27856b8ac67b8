package storetest

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Stores that use a choice of the contract pass all cases.
func TestRightStoresPass(t *testing.T) {
	for name, c := range map[string]struct {
		store   func(*memstore.Store) dedup.Store
		missing []Ability
	}{
		"a lost completion is done":         {newFactual, []Ability{Results}},
		"a horizon that follows the clock":  {newAgeing, []Ability{Look}},
		"a limit for results":               {newLimited(true, false), nil},
		"a renewal fails for a part":        {newParts([]int{0}, []int{1}), nil},
		"without the abilities of memstore": {func(s *memstore.Store) dedup.Store { return &plain{s} }, []Ability{Reopen, Look}},
	} {
		t.Run(name, func(t *testing.T) {
			h := inMemory(c.store)
			h.Around, h.Missing = synctest.Test, append(h.Missing, c.missing...)
			Run(t, h)
		})
	}
}

// A lost completion that is done decides the race in most runs, but not in all.
func TestRaceEndsWithoutResults(t *testing.T) {
	for range 20 {
		h := inMemory(newFactual)
		h.Missing = append(h.Missing, Results)
		require.Empty(t, verdictOf(t,
			"random: workers that race and crash never overlap and lose nothing", h))
	}
}

// A store, or a machine, that stalls for several leases proves no fault.
func TestStalledCallsProveNoFault(t *testing.T) {
	for _, name := range []string{
		"complete: the retention is counted anew",
		"lease: a take-over is kept for its own lease and retention (rule 33)",
	} {
		require.Empty(t, verdictOf(t, name, inMemory(newStalling)), name)
	}
}
