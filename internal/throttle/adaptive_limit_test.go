package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A lock by itself may have been the server's own; two before groups have their full size again are
// the handlers' (rule 1).
func TestGroupSize_GrowsSlowlyAfterTwoLocks_Rule1(t *testing.T) {
	const most = 64
	var g AdaptiveLimit
	g.Reset(most)
	grow := func(events int) {
		for range events {
			g.Grow(1, most)
		}
	}
	g.StartOver()
	require.Equal(t, 1, g.Now())
	grow(cleanSizes * most)
	require.Equal(t, most, g.Now(), "doubles after one")
	grow(1)

	g.StartOver()
	grow(cleanSizes)
	require.Equal(t, 2, g.Now())
	g.StartOver()
	require.Equal(t, 1, g.Now())
	grow(cleanEvents * (most - 2))
	require.Equal(t, most-1, g.Now(), "one for each hundred after two")
	grow(2 * cleanEvents)
	require.Equal(t, most, g.Now())
	grow(1)
	g.StartOver()
	grow(cleanSizes * most)
	require.Equal(t, most, g.Now(), "what was learned is forgotten at full size")
}
