package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Deferred events fail more often than others. They do not make the groups of the others small
// (rules 4 and 12).
func TestGroupSize_DeferredEventsHaveTheirOwn_Rule4(t *testing.T) {
	rt := &bound{Handler: &Handler{}}
	rt.txLimit.Reset(64)
	rt.deferredLimit.Reset(64)
	deferred := &task{reading: reading{route: rt}, deferred: &deferredEvent{}}
	other := &task{reading: reading{route: rt}}
	g := txGroup{group: &eventGroup{tasks: []*task{deferred, deferred}}}
	g.shrink()
	require.Equal(t, 1, deferred.limit().Now())
	require.Equal(t, 64, other.limit().Now())
}
