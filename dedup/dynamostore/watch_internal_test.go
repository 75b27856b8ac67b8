package dynamostore

import (
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// The list is bounded by the claims in demand. A claim without further questions leaves the list
// after a while.
func TestWatchForgetsIdle(t *testing.T) {
	w, now := newWatch(100), time.Now()
	claim := func(rev uint64) *record { return claimOf(dedup.Token{}, rev, time.Minute) }
	for _, k := range []string{"a", "b", "c", "d"} {
		w.saw(k, claim(1), now)
	}
	later := now.Add(idle + 3*time.Minute)
	require.Negative(t, w.left("a", claim(1), later), "seen before, and unchanged since")
	require.Equal(t, time.Minute, w.left("b", claim(2), later), "changed: alive")
	w.saw("e", claim(1), later) // c and d are idle
	require.Equal(t, 3, w.len())
	require.Equal(t, time.Minute, w.left("c", claim(1), later), "forgotten, so seen for the first time")
	w.drop("a")
	w.drop("a")
	require.Equal(t, time.Minute, w.left("a", claim(1), later))
}

// Each part of a state counts: another claim, or a renewal of the same one.
func TestWatchTellsStates(t *testing.T) {
	w, now := newWatch(100), time.Now()
	r := *claimOf(dedup.Token{}, 7, time.Minute)
	w.saw("a", &r, now)
	now = now.Add(time.Hour)
	other := r
	other.Token[15]++
	require.Equal(t, time.Minute, w.left("a", &other, now))
	now = now.Add(time.Hour)
	require.Negative(t, w.left("a", &other, now))
	require.Equal(t, time.Minute, w.left("a", &r, now))
}
