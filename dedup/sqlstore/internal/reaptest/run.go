package reaptest

import "testing"

// Run runs all tests.
func Run(t *testing.T, newSite func(t testing.TB) Site) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Site)
	}{
		{"progress", progress},
		{"register: descriptors", registerDescriptors},
		{"register: scopes", registerScopes},
		{"register: at once", registerAtOnce},
		{"reap: lag", lag},
		{"reap: cut-off", cutoff},
		{"reap: stands still", standsStill},
		{"reap: two steps", steps},
		{"reap: clocks", clocks},
		{"reap: dead letters", deadLetters},
		{"reap: stuck claims", stuck},
		{"reap: starts", starts},
		{"reap: silent scopes", silent},
		{"reap: batches, and a kill between", batches},
		{"reap: same expiry", sameExpiry},
		{"reap: locked rows", locked},
		{"reap: locked live rows", lockedLive},
		{"reap: alike keys", alikeKeys},
		{"reap: at once", atOnce},
		{"reap: lost lease", lostLease},
		{"reap: other scopes beside", otherScopesBeside},
		{"reap: slow scope", slowScope},
		{"reap: configuration", configuration},
		{"check: missing tables", missingTable},
		{"horizon: rewind", rewind},
		{"horizon: moves between two reads", movesBetweenReads},
		{"horizon: never Fresh", neverFresh},
		{"horizon: a claimed row stays", claimedStays},
		{"horizon: claimed between two steps", claimedBetween},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, newSite(t)) })
	}
}
