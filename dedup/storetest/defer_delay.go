package storetest

import (
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

func (k *deferral) delay(wait time.Duration, queues ...string) {
	k.Helper()
	require.NoError(k, k.p.Delay(k.ctx, part, wait, queues...))
}

func deferDelay(kt *kit) {
	k := deferralOf(kt)
	deferDelayMany(k)
	deferDelayEnds(k)
}

// deferDelayMany: More queues have a delayed head than one question asks for. The queues behind
// those still have their turn.
func deferDelayMany(k *deferral) {
	const limit = 32
	stuck := steps(150)
	var events []dedup.Deferred
	for i := range stuck {
		events = append(events, waiting(numbered("stuck-", i), numbered("s", i), 0))
	}
	k.deferEvent(events...)
	k.pause()
	k.deferEvent(waiting("last", "last", 0))
	met := make(map[string]bool)
	for range stuck/limit + 2 {
		heads, next, err := k.peer.Due(k.ctx, part, limit)
		require.NoError(k, err)
		var queues []string
		for _, e := range heads {
			require.False(k, met[e.Queue], "%q is delayed", e.Queue)
			met[e.Queue] = true
			queues = append(queues, e.Queue)
		}
		if slices.Contains(queues, "last") {
			require.Positive(k, next)
		}
		k.delay(long, queues...)
	}
	require.Len(k, met, stuck+1, "queues that had their turn")
	for _, e := range append(events, waiting("last", "last", 0)) {
		k.remove(e.Queue, e.Key.ID, true)
	}
	k.lengths(part)
}

// deferDelayEnds: A delay is over in time, or when the head changes.
func deferDelayEnds(k *deferral) {
	a := waiting("q", "a", 0)
	k.deferEvent(a, waiting("q", "b", 0), waiting("r", "c", 0), waiting("late", "d", long),
		waiting("blocked", "e", 0))
	blocked := waiting("blocked", "e", 0)
	blocked.Blocked = true
	k.postpone(true, blocked)
	k.delay(long)
	k.delay(k.lease/4, "late", "blocked", "not there")
	k.pause()
	k.due("a", "c")
	k.delay(long, "q", "r", "late")
	next := k.due()
	require.Greater(k, next, long/2)
	require.LessOrEqual(k, next, long)
	k.like(a, k.head("q", "a"))
	require.LessOrEqual(k, k.head("q", "a").Wait, time.Duration(0),
		"the event itself does not wait")
	k.delay(k.lease/4, "q")
	k.outlast()
	require.Greater(k, k.due(), long/4, "a delay does not end sooner by a shorter one")
	k.deferEvent(waiting("q", "f", 0), waiting("r", "g", 0))
	k.due()
	k.remove("q", "b", false)
	k.due()
	k.remove("q", "a", false)
	k.due("f")
	c := waiting("r", "c", 0)
	c.Position.Retry = 1
	k.postpone(true, c)
	k.due("f", "c")
	delayed := k.waits(k.lease, func() { k.delay(k.lease, "q") })
	delayed("c", "f")
}
