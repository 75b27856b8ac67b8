package decision

import (
	"slices"

	"github.com/idem-go/idem/dedup"
)

// ReaperLease returns the name of the lease that a reaper works under. Reapers with the same
// wall-clock scopes do the same work, so one works at a time. A reaper with other scopes has a lease
// of its own: the first one would never delete their rows. Two reapers at once are safe, because a
// batch skips rows that are locked, and a horizon only moves on.
func ReaperLease(wallClock []string) string {
	if len(wallClock) == 0 {
		return "reaper"
	}
	scopes := slices.Sorted(slices.Values(wallClock))
	return "reaper " + dedup.Hash(slices.Compact(scopes)...)
}
