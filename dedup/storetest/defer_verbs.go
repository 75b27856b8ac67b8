package storetest

import (
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

func deferBlocked(kt *kit) {
	k := deferralOf(kt)
	a := waiting("q", "a", 0)
	k.deferEvent(a, waiting("q", "b", 0), waiting("r", "c", 0))
	a.Blocked = true
	for range 2 {
		k.postpone(true, a)
		require.Negative(k, k.due("c"))
		k.lengths(part, dedup.Queue{Name: "q", Length: 2, Blocked: true}, queue("r", 1))
		require.True(k, k.head("q", "a").Blocked)
	}
	a.Blocked = false
	k.postpone(false, a) // to run it again takes a position that is open
	a.Position = dedup.Position{Generation: 1}
	k.postpone(true, a)
	k.due("c", "a")
	a.Blocked = true
	k.postpone(true, a)
	k.due("c")
	// skipped
	empty, err := k.p.Remove(k.ctx, part, "q", dedup.Deferred{Key: a.Key, Position: a.Position})
	require.NoError(k, err)
	require.False(k, empty)
	k.due("c", "b")
	c := waiting("q", "d", 0)
	k.deferEvent(c)
	c.Blocked = true
	k.postpone(true, c) // given up behind another one
	k.due("c", "b")
	k.remove("q", "b", false)
	k.due("c")
	k.lengths(part, dedup.Queue{Name: "q", Length: 1, Blocked: true}, queue("r", 1))
}

func (k *deferral) postpone(moves bool, e dedup.Deferred) {
	k.Helper()
	moved, err := k.p.Postpone(k.ctx, part, e)
	require.NoError(k, err)
	require.Equal(k, moves, moved, "%s to %v", e.Key, e.Position)
}

func deferPostpone(kt *kit) {
	k := deferralOf(kt)
	a := waiting("q", "a", 0)
	a.Position = dedup.Position{Generation: 1, Retry: 2}
	k.deferEvent(a, waiting("q", "b", 0))
	for _, p := range []dedup.Position{{}, {Retry: 9}, {Generation: 1, Retry: 1},
		{Generation: 1, Retry: 2}} {
		late := a
		late.Position, late.Wait, late.Data = p, long, []byte("late")
		k.postpone(false, late)
		late.Blocked = p.Before(a.Position)
		k.postpone(false, late)
	}
	k.like(a, k.head("q", "a"))
	require.Negative(k, k.due("a"))
	elsewhere := a
	elsewhere.Queue, elsewhere.Position.Retry = "r", 9
	k.postpone(false, elsewhere)
	next := a
	next.Position.Retry, next.Wait, next.Data, next.Origin = 3, long, []byte("later"), origin(9, 9)
	k.postpone(true, next)
	k.postpone(false, next)
	next.Origin = a.Origin // of its first delivery, as before
	k.like(next, k.head("q", "a"))
	require.Greater(k, k.due(), long/2)
	next.Position, next.Wait = dedup.Position{Generation: 2}, 0
	k.postpone(true, next)
	k.due("a")
	k.lengths(part, queue("q", 2))
	b := waiting("q", "b", long)
	b.Position.Retry = 1
	k.postpone(true, b) // not the head
	require.Negative(k, k.due("a"), "a wait behind the head is no wait")
	empty, err := k.p.Remove(k.ctx, part, "q", dedup.Deferred{Key: a.Key, Position: next.Position})
	require.NoError(k, err)
	require.False(k, empty)
	require.Greater(k, k.due(), long/2)
}

func deferRemove(kt *kit) {
	k := deferralOf(kt)
	a := waiting("q", "a", 0)
	a.Position = dedup.Position{Generation: 1, Retry: 2}
	k.deferEvent(a, waiting("q", "b", 0), waiting("q", "c", 0))
	remove := func(p dedup.Position) {
		k.Helper()
		empty, err := k.p.Remove(k.ctx, part, "q", dedup.Deferred{Key: a.Key, Position: p})
		require.NoError(k, err)
		require.False(k, empty)
	}
	for _, p := range []dedup.Position{{}, {Retry: 5}, {Generation: 1, Retry: 1}, {Generation: 2},
		{Generation: 2, Retry: 2}} {
		remove(p) // it was postponed or reopened meanwhile
		k.head("q", "a")
		k.lengths(part, queue("q", 3))
	}
	k.remove("r", "b", true)
	k.remove("q", "b", false) // not the head
	k.due("a")
	k.lengths(part, queue("q", 2))
	remove(dedup.Position{Generation: 1, Retry: 3}) // the postponing before this run was lost
	for range 2 {
		remove(a.Position)
		k.due("c")
	}
	for range 2 {
		k.remove("q", "c", true)
	}
}

// deferSeveral: The engine calls First, Remove and DeferredOf for many events. Each event of a
// Remove is judged by its own position.
func deferSeveral(kt *kit) {
	k := deferralOf(kt)
	var q []dedup.Deferred
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		q = append(q, waiting("q", id, 0))
	}
	q[1].Position, q[4].Wait = dedup.Position{Retry: 2}, long
	other := waiting("r", "f", 0)
	k.deferEvent(append(slices.Clone(q), other)...)
	k.pause()
	for _, limit := range []int{0, 1, 3, 5, 64} {
		k.first(limit, q[:min(limit, len(q))]...)
	}
	all := []dedup.Key{other.Key, key("unknown"), q[4].Key, q[3].Key, q[2].Key, q[1].Key, q[0].Key}
	k.those(all[:5], q[2], q[3], q[4], other)
	remove := func(ended bool, events ...dedup.Deferred) {
		k.Helper()
		empty, err := k.p.Remove(k.ctx, part, "q", events...)
		require.NoError(k, err)
		require.Equal(k, ended, empty)
	}
	remove(false, dedup.Deferred{Key: q[0].Key},
		dedup.Deferred{Key: q[1].Key, Position: dedup.Position{Retry: 1}},      // it was postponed
		dedup.Deferred{Key: q[3].Key, Position: dedup.Position{Generation: 1}}, // of a reopening
		dedup.Deferred{Key: q[4].Key, Position: dedup.Position{Retry: 3}},
		dedup.Deferred{Key: other.Key}) // in another queue
	k.first(64, q[1:4]...)
	k.those(all, q[1], q[2], q[3], other)
	k.due("f", "b")
	remove(true, q[3], dedup.Deferred{Key: key("unknown")}, q[2], q[1])
	k.first(64)
	k.those(all, other)
	k.lengths(part, queue("r", 1))
}

// first requires the first events of the queue "q" to be these.
func (k *deferral) first(limit int, want ...dedup.Deferred) {
	k.Helper()
	got, err := k.peer.First(k.ctx, part, "q", limit)
	require.NoError(k, err)
	require.Equal(k, ids(want), ids(got), "the first %d", limit)
	for i := range want {
		k.like(want[i], got[i])
	}
}

// those requires the deferred events of keys to be these, which ascend.
func (k *deferral) those(keys []dedup.Key, want ...dedup.Deferred) {
	k.Helper()
	got, err := k.peer.DeferredOf(k.ctx, part.Scope, part.Topic, keys...)
	require.NoError(k, err)
	byID(got)
	require.Equal(k, ids(want), ids(got), "the deferred ones of the keys")
	for i := range want {
		k.like(want[i], got[i])
	}
}

// deferTurn: A long queue does not keep others from their turns.
func deferTurn(kt *kit) {
	k := deferralOf(kt)
	k.deferEvent(waiting("q", "a", 0), waiting("q", "b", 0), waiting("q", "c", 0))
	k.pause()
	k.deferEvent(waiting("r", "d", 0), waiting("r", "e", 0))
	k.pause()
	k.due("a", "d")
	k.remove("q", "a", false)
	k.pause()
	k.due("d", "b")
	k.remove("q", "c", false) // the head stays, and so does its turn
	k.remove("r", "d", false)
	k.due("b", "e")
}

func deferDue(kt *kit) {
	k := deferralOf(kt)
	for _, id := range []string{"c", "a", "d"} {
		k.deferEvent(waiting("queue of "+id, id, 0), waiting("queue of "+id, "behind "+id, 0))
		k.pause()
	}
	k.deferEvent(waiting("b", "b", long))
	for limit, want := range [][]string{nil, {"c"}, {"c", "a"}, {"c", "a", "d"}, {"c", "a", "d"}} {
		heads, next, err := k.p.Due(k.ctx, part, limit)
		require.NoError(k, err)
		require.Equal(k, want, ids(heads))
		if limit < 3 {
			require.Zero(k, next, "one is due already")
		} else {
			require.Greater(k, next, long/2)
			require.LessOrEqual(k, next, long)
		}
	}
}
