package storetest

import (
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// deferTests cover the queues of events that wait (rule 4).
var deferTests = []testCase{
	{name: "defer: a deferred event comes back unchanged", run: deferWhole},
	{name: "defer: a queue runs in the order in which it was deferred (rule 4)", run: deferOrder},
	{name: "defer: a repeat changes nothing (rule 4)", run: deferRepeat},
	{name: "defer: an event is in one queue, and no queue is without one", run: deferOnce},
	{name: "defer: all or nothing", run: deferRefused},
	{name: "defer: nothing to defer", run: deferNothing},
	{name: "defer: a wait holds back until it is over", run: deferWait},
	{name: "defer: events behind a given-up event wait for a person (rule 4)", run: deferBlocked},
	{name: "defer: an event is postponed to a later position only (rule 3)", run: deferPostpone},
	{name: "defer: removes the expected event only", run: deferRemove},
	{name: "defer: several events are read, found and removed in one call", run: deferSeveral},
	{name: "defer: the next event takes its turn behind the other queues", run: deferTurn},
	{name: "defer: the longest due come first, and the rest is announced", run: deferDue},
	{name: "defer: queues that are delayed keep no other one from its turn (rule 4)",
		run: deferDelay},
	{name: "defer: partitions are apart", run: deferPartitions},
	{name: "defer: a queue belongs to the partition of its last event", run: deferPartition},
	{name: "defer: queues are listed by name, page by page", run: deferQueues},
	{name: "defer: long names are distinguished", run: deferLongNames},
	{name: "defer: found by a person", run: deferFind},
	{name: "defer: no event is lost between deferral and end of a queue (rule 4)", alone: true,
		run: deferRace},
	{name: "defer: the same events deferred by two at once are there once", alone: true,
		run: deferTwice},
	{name: "defer: a server that is down is unavailable (R-19)", needs: Outage, run: deferDown},
	{name: "defer: random: thousands of calls agree with a model", alone: true, run: deferRandom},
}

// RunDeferrer tests that the stores of h keep the contract of [dedup.Deferrer]. RunDeferrer uses
// New, Peer, Down, Sleep, Around, Horizon and the entry [Outage] of Missing. The tests wait for
// a quarter of Lease and longer.
func RunDeferrer(t *testing.T, h Harness) {
	h = h.ready(t)
	for _, c := range deferTests {
		t.Run(c.name, func(t *testing.T) { runOne(t, h, c) })
	}
}

func deferWhole(kt *kit) {
	k := deferralOf(kt)
	names := []string{"", "plain", "\x00", "\xff\xfe not UTF-8", "Ä {日} % : \n", "'; --"}
	want := make(map[string]dedup.Deferred)
	for i, name := range names {
		e := waiting(name, numbered("e", i), 0)
		e.Position = dedup.Position{Generation: 4_000_000_000, Retry: uint32(i)}
		e.Key.Tenant, e.Key.Type = []string{"", "\u00e9", "日"}[i%3], "%:{}"
		e.Data = []byte{0, 255, byte(i)}
		if i == 0 {
			e.Data, e.Origin = nil, dedup.Origin{}
		}
		want[name] = e
		k.deferEvent(e)
	}
	heads, next, err := k.peer.Due(k.ctx, part, 100)
	require.NoError(k, err)
	require.Negative(k, next)
	require.Len(k, heads, len(names))
	for _, e := range heads {
		k.like(want[e.Queue], e)
	}
	for _, e := range want {
		head, ok, err := headOf(k.ctx, k.peer, part, e.Queue)
		require.NoError(k, err)
		require.True(k, ok)
		k.like(e, head)
		where, found, ok, err := k.peer.FindDeferred(k.ctx, part.Scope, part.Topic, e.Key)
		require.NoError(k, err)
		require.True(k, ok)
		require.Equal(k, part, where)
		k.like(e, found)
		those, err := k.peer.DeferredOf(k.ctx, part.Scope, part.Topic, key("not deferred"), e.Key)
		require.NoError(k, err)
		require.Len(k, those, 1)
		k.like(e, those[0])
		empty, err := k.p.Remove(k.ctx, part, e.Queue, dedup.Deferred{Key: e.Key,
			Position: e.Position})
		require.NoError(k, err)
		require.True(k, empty)
	}
	k.lengths(part)
}

func deferOrder(kt *kit) {
	k := deferralOf(kt)
	k.deferEvent(waiting("q", "c", long), waiting("q", "b", 0))
	k.deferEvent(waiting("q", "a", 0))
	next := k.due()
	require.Positive(k, next, "the head waits, regardless of the events behind it")
	require.LessOrEqual(k, next, long)
	got := k.lengths(part, queue("q", 3))
	require.Positive(k, got[0].Wait)
	require.LessOrEqual(k, got[0].Wait, long)
	require.Positive(k, k.head("q", "c").Wait)
	k.remove("q", "c", false)
	require.Negative(k, k.due("b"))
	k.head("q", "b")
	k.remove("q", "b", false)
	k.due("a")
	k.remove("q", "a", true)
	require.Negative(k, k.due())
	k.head("q", "")
	k.lengths(part)
	k.deferEvent(waiting("q", "b", 0)) // a queue may begin anew
	k.due("b")
}

func deferRepeat(kt *kit) {
	k := deferralOf(kt)
	first := waiting("q", "a", long)
	second := waiting("q", "b", 0)
	k.deferEvent(first, second, second)
	again := waiting("q", "a", 0)
	again.Position.Retry, again.Data = 2, []byte("other")
	k.deferEvent(second, again, waiting("q", "c", 0))
	require.Positive(k, k.due(), "it waits as it did")
	k.like(first, k.head("q", "a"))
	k.lengths(part, queue("q", 3))
	for _, id := range []string{"a", "b"} {
		k.remove("q", id, false)
	}
	k.remove("q", "c", true)
}

// deferOnce: An event has one Kafka key. A copy with another Kafka key does not move the event.
func deferOnce(kt *kit) {
	k := deferralOf(kt)
	k.deferEvent(waiting("q", "a", 0))
	k.deferEvent(waiting("other", "a", 0))
	k.lengths(part, queue("q", 1))
	k.head("other", "")
	k.deferEvent(waiting("other", "a", 0), waiting("other", "b", 0))
	k.lengths(part, queue("other", 1), queue("q", 1))
	k.head("other", "b")
	k.deferEvent(waiting("s", "c", 0), waiting("t", "c", 0))
	k.lengths(part, queue("other", 1), queue("q", 1), queue("s", 1))
	k.remove("t", "c", true) // not there
	k.head("s", "c")
	k.remove("q", "b", false)
	k.head("other", "b")
}

func deferRefused(kt *kit) {
	k := deferralOf(kt)
	other := waiting("q", "b", 0)
	other.Key.Scope = "somebody else"
	noID := waiting("q", "b", 0)
	noID.Key.ID = ""
	for _, bad := range []dedup.Deferred{other, noID} {
		err := k.p.Defer(k.ctx, part, []dedup.Deferred{waiting("q", "a", 0), bad,
			waiting("r", "c", 0)})
		require.Error(k, err)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "it would be repeated for ever")
		k.lengths(part)
		k.due()
	}
	require.ErrorIs(k, k.p.Defer(k.ctx, part, []dedup.Deferred{noID}), dedup.ErrKey)
}

func deferNothing(kt *kit) {
	k := deferralOf(kt)
	require.NoError(k, k.p.Defer(k.ctx, part, nil))
	require.Negative(k, k.due())
	k.lengths(part)
	k.head("q", "")
	k.remove("q", "a", true)
	moved, err := k.p.Postpone(k.ctx, part, waiting("q", "a", 0))
	require.NoError(k, err)
	require.False(k, moved)
	_, _, ok, err := k.p.FindDeferred(k.ctx, part.Scope, part.Topic, key("a"))
	require.NoError(k, err)
	require.False(k, ok)
	k.lengths(part)
}

func deferWait(kt *kit) {
	k := deferralOf(kt)
	soon := k.waits(k.lease, func() {
		k.deferEvent(waiting("late", "a", long), waiting("soon", "b", k.lease),
			waiting("never", "c", -long), waiting("soon", "d", k.lease/4))
	})
	require.Greater(k, soon("c", "b"), long/2)
	k.remove("soon", "b", false)
	k.due("c", "d") // the wait of "d" went by meanwhile
	later := k.waits(k.lease, func() {
		k.deferEvent(waiting("later", "e", 0),
			waiting("later", "f", k.lease))
	})
	k.remove("later", "e", false)
	later("c", "d", "f") // an event that failed alone waits alone
}

func deferPartitions(kt *kit) {
	k := deferralOf(kt)
	scope, topic := part, part
	scope.Scope, topic.Topic = "invoices", "payments"
	for i, l := range []dedup.DeferredPartition{part, scope, topic} {
		e := waiting("q", "a", 0)
		e.Key.Scope, e.Data = l.Scope, []byte{byte(i)}
		require.NoError(k, k.p.Defer(k.ctx, l, []dedup.Deferred{e}))
	}
	for i, l := range []dedup.DeferredPartition{part, scope, topic} {
		heads, next, err := k.peer.Due(k.ctx, l, 9)
		require.NoError(k, err)
		require.Negative(k, next)
		require.Len(k, heads, 1)
		require.Equal(k, []byte{byte(i)}, heads[0].Data)
		require.Equal(k, l.Scope, heads[0].Key.Scope)
		k.lengths(l, queue("q", 1))
		empty, err := k.p.Remove(k.ctx, l, "q", dedup.Deferred{Key: heads[0].Key})
		require.NoError(k, err)
		require.True(k, empty)
		k.lengths(l)
	}
}

// deferPartition: Partitions were added to the topic, and the key has another one since.
func deferPartition(kt *kit) {
	k := deferralOf(kt)
	old := part
	old.Partition = 0
	require.NoError(k, k.p.Defer(k.ctx, old, []dedup.Deferred{waiting("q", "a", 0),
		waiting("stays", "x", 0)}))
	k.lengths(part)
	k.due()
	k.deferEvent(waiting("q", "b", 0))
	k.due("a")
	k.lengths(part, queue("q", 2))
	k.lengths(old, queue("stays", 1))
	where, _, ok, err := k.p.FindDeferred(k.ctx, part.Scope, part.Topic, key("a"))
	require.NoError(k, err)
	require.True(k, ok)
	require.Equal(k, part, where)
	head, ok, err := headOf(k.ctx, k.p, old, "q") // the former owner may still run the event
	require.NoError(k, err)
	require.True(k, ok)
	require.Equal(k, key("a"), head.Key)
	head.Position.Retry = 1
	moved, err := k.p.Postpone(k.ctx, old, head)
	require.NoError(k, err)
	require.True(k, moved)
	empty, err := k.p.Remove(k.ctx, old, "q", dedup.Deferred{Key: head.Key,
		Position: head.Position})
	require.NoError(k, err)
	require.False(k, empty)
	k.due("b")
}

func deferDown(k *kit) {
	p := deferrer(k, k.h.Down(k))
	_, _, err := p.Due(k.ctx, part, 1)
	_, headOK, headErr := headOf(k.ctx, p, part, "q")
	those, thoseErr := p.DeferredOf(k.ctx, part.Scope, part.Topic, key("a"), key("b"))
	_, queuesErr := p.Queues(k.ctx, part, "", 1)
	moved, postponeErr := p.Postpone(k.ctx, part, waiting("q", "a", 0))
	empty, removeErr := p.Remove(k.ctx, part, "q", dedup.Deferred{Key: key("a")})
	_, _, found, findErr := p.FindDeferred(k.ctx, part.Scope, part.Topic, key("a"))
	for _, err := range []error{err, headErr, queuesErr, postponeErr, removeErr, findErr,
		thoseErr, p.Delay(k.ctx, part, long, "q"), p.Defer(k.ctx, part,
			[]dedup.Deferred{waiting("q", "a", 0)})} {
		require.ErrorIs(k, err, dedup.ErrUnavailable)
	}
	require.False(k, headOK || moved || empty || found || len(those) > 0, "an error and an answer")
}
