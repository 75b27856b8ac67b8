package idem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A lock by itself may have been the server's own; two before groups have their full size again are the handlers' (rule 1).
func TestGroupSize_GrowsSlowlyAfterTwoLocks_Rule1(t *testing.T) {
	const most = 64
	var g adaptiveLimit
	g.limit.Store(most)
	grow := func(events int) {
		for range events {
			g.grow(1, most)
		}
	}
	g.startOver()
	require.Equal(t, 1, g.now())
	grow(cleanSizes * most)
	require.Equal(t, most, g.now(), "doubles after one")
	grow(1)

	g.startOver()
	grow(cleanSizes)
	require.Equal(t, 2, g.now())
	g.startOver()
	require.Equal(t, 1, g.now())
	grow(cleanEvents * (most - 2))
	require.Equal(t, most-1, g.now(), "one for each hundred after two")
	grow(2 * cleanEvents)
	require.Equal(t, most, g.now())
	grow(1)
	g.startOver()
	grow(cleanSizes * most)
	require.Equal(t, most, g.now(), "what was learned is forgotten at full size")
}

// What waits in the store's table fails more often than others; their groups are not made small by it (rules 4 and 12).
func TestGroupSize_DeferredEventsHaveTheirOwn_Rule4(t *testing.T) {
	rt := &bound{route: &route{}}
	rt.txLimit.limit.Store(64)
	rt.deferredLimit.limit.Store(64)
	deferred := &task{reading: reading{route: rt}, deferred: &deferredEvent{}}
	other := &task{reading: reading{route: rt}}
	g := txGroup{events: &eventGroup{tasks: []*task{deferred, deferred}}}
	g.shrink()
	require.Equal(t, 1, deferred.limit().now())
	require.Equal(t, 64, other.limit().now())
}
