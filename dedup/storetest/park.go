package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// parkTests cover the queues of events that wait (rule 4).
var parkTests = []test{
	{name: "park: what is parked comes back as it was", run: parkWhole},
	{name: "park: a queue runs in the order in which it was parked (rule 4)", run: parkOrder},
	{name: "park: a repeat changes nothing (rule 4)", run: parkRepeat},
	{name: "park: an event is in one queue, and no queue is without one", run: parkOnce},
	{name: "park: all or nothing", run: parkRefused},
	{name: "park: nothing to park", run: parkNothing},
	{name: "park: a wait holds back until it is over", run: parkWait},
	{name: "park: those behind what was given up wait for a person (rule 4)", run: parkBlocked},
	{name: "park: an event is postponed to a later position only (rule 3)", run: parkPostpone},
	{name: "park: what is removed is what was expected", run: parkRemove},
	{name: "park: what follows takes its turn behind the other queues", run: parkTurn},
	{name: "park: the longest due come first, and the rest is announced", run: parkDue},
	{name: "park: queues that are delayed keep no other one from its turn (rule 4)", run: parkDelay},
	{name: "park: lots are apart", run: parkLots},
	{name: "park: a queue belongs to the partition of its last event", run: parkPartition},
	{name: "park: queues are listed by name, page by page", run: parkQueues},
	{name: "park: long names are told apart", run: parkLongNames},
	{name: "park: found by a person", run: parkFind},
	{name: "park: nothing is lost between who parks and who ends the queue (rule 4)", alone: true, run: parkRace},
	{name: "park: the same events parked by two at once are there once", alone: true, run: parkTwice},
	{name: "park: a server that is down is unavailable (R-19)", needs: Outage, run: parkDown},
	{name: "park: random: thousands of calls agree with a model", alone: true, run: parkRandom},
}

// RunParker tests that the stores of h keep the contract of [dedup.Parker]. Of h it uses New, Peer, Down, Sleep, Around, Horizon and
// of Missing [Outage]. Waits of the tests are a quarter of Lease and more.
func RunParker(t *testing.T, h Harness) {
	h = h.ready(t)
	for _, c := range parkTests {
		t.Run(c.name, func(t *testing.T) { runOne(t, h, c) })
	}
}

// parking are the verbs of a store that parks; they fail the test instead of returning errors.
type parking struct {
	*kit
	p, peer dedup.Parker
}

func parkingOf(k *kit) *parking {
	k.Helper()
	return &parking{kit: k, p: parker(k, k.s), peer: parker(k, k.peer)}
}

func parker(k *kit, s dedup.Store) dedup.Parker {
	k.Helper()
	p, ok := s.(dedup.Parker)
	require.True(k, ok, "%T is no dedup.Parker", s)
	return p
}

var lot = dedup.Lot{Scope: "orders", Topic: "orders", Partition: 3}

// waiting is an event to park in queue.
func waiting(queue, id string, wait time.Duration) dedup.Parked {
	return dedup.Parked{Key: key(id), Queue: queue, Wait: wait, Origin: origin(3, 7), Data: []byte("data of " + id)}
}

func (k *parking) park(events ...dedup.Parked) {
	k.Helper()
	require.NoError(k, k.p.Park(k.ctx, lot, events))
}

// due requires the heads that are due to be those, in this order, and returns how long until the next.
func (k *parking) due(want ...string) time.Duration {
	k.Helper()
	heads, next, err := k.peer.Due(k.ctx, lot, 100)
	require.NoError(k, err)
	require.Equal(k, want, ids(heads), "due")
	for _, e := range heads {
		require.LessOrEqual(k, e.Wait, time.Duration(0), "%s is due", e.Key)
		require.False(k, e.Blocked, "%s is due", e.Key)
	}
	return next
}

func (k *parking) remove(queue, id string, empty bool) {
	k.Helper()
	got, err := k.p.Remove(k.ctx, lot, queue, dedup.Parked{Key: key(id)})
	require.NoError(k, err)
	require.Equal(k, empty, got, "the queue %q has ended with %s", queue, id)
}

// head requires the head of a queue to be this event; an empty ID: none.
func (k *parking) head(queue, id string) dedup.Parked {
	k.Helper()
	e, ok, err := headOf(k.ctx, k.peer, lot, queue)
	require.NoError(k, err)
	require.Equal(k, id != "", ok, "a head of %q: %s", queue, e.Key)
	if ok {
		require.Equal(k, key(id), e.Key, "head of %q", queue)
		require.Equal(k, queue, e.Queue)
	}
	return e
}

// lengths requires the queues of a lot to be these, in order.
func (k *parking) lengths(l dedup.Lot, want ...dedup.Queue) []dedup.Queue {
	k.Helper()
	got, err := k.peer.Queues(k.ctx, l, "", 100)
	require.NoError(k, err)
	bare := make([]dedup.Queue, 0, len(got))
	for _, q := range got {
		q.Wait = 0
		bare = append(bare, q)
	}
	if len(want) == 0 {
		want = []dedup.Queue{}
	}
	require.Equal(k, want, bare, "queues of %v", l)
	return got
}

func ids(events []dedup.Parked) []string {
	var out []string
	for i := range events {
		out = append(out, events[i].Key.ID)
	}
	return out
}

func queue(name string, length int) dedup.Queue { return dedup.Queue{Name: name, Length: length} }

// like requires an event that comes back to be as it was parked, but for its wait.
func (k *kit) like(want, got dedup.Parked) {
	k.Helper()
	sameOrigin(k, want.Origin, got.Origin)
	got.Origin, got.Wait, want.Wait = want.Origin, 0, 0
	if len(want.Data) == 0 {
		require.Empty(k, got.Data)
		got.Data = want.Data
	}
	require.Equal(k, want, got)
}

func parkWhole(kt *kit) {
	k := parkingOf(kt)
	names := []string{"", "plain", "\x00", "\xff\xfe not UTF-8", "Ä {日} % : \n", "'; --"}
	want := make(map[string]dedup.Parked)
	for i, name := range names {
		e := waiting(name, numbered("e", i), 0)
		e.Position = dedup.Position{Generation: 4_000_000_000, Retry: uint32(i)}
		e.Key.Tenant, e.Key.Type = []string{"", "\u00e9", "日"}[i%3], "%:{}"
		e.Data = []byte{0, 255, byte(i)}
		if i == 0 {
			e.Data, e.Origin = nil, dedup.Origin{}
		}
		want[name] = e
		k.park(e)
	}
	heads, next, err := k.peer.Due(k.ctx, lot, 100)
	require.NoError(k, err)
	require.Negative(k, next)
	require.Len(k, heads, len(names))
	for _, e := range heads {
		k.like(want[e.Queue], e)
	}
	for _, e := range want {
		head, ok, err := headOf(k.ctx, k.peer, lot, e.Queue)
		require.NoError(k, err)
		require.True(k, ok)
		k.like(e, head)
		where, found, ok, err := k.peer.FindParked(k.ctx, lot.Scope, lot.Topic, e.Key)
		require.NoError(k, err)
		require.True(k, ok)
		require.Equal(k, lot, where)
		k.like(e, found)
		those, err := k.peer.ParkedOf(k.ctx, lot.Scope, lot.Topic, key("not parked"), e.Key)
		require.NoError(k, err)
		require.Len(k, those, 1)
		k.like(e, those[0])
		empty, err := k.p.Remove(k.ctx, lot, e.Queue, dedup.Parked{Key: e.Key, Position: e.Position})
		require.NoError(k, err)
		require.True(k, empty)
	}
	k.lengths(lot)
}

func parkOrder(kt *kit) {
	k := parkingOf(kt)
	k.park(waiting("q", "c", long), waiting("q", "b", 0))
	k.park(waiting("q", "a", 0))
	next := k.due()
	require.Positive(k, next, "the head waits, whatever those behind it do")
	require.LessOrEqual(k, next, long)
	got := k.lengths(lot, queue("q", 3))
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
	k.lengths(lot)
	k.park(waiting("q", "b", 0)) // a queue may begin anew
	k.due("b")
}

func parkRepeat(kt *kit) {
	k := parkingOf(kt)
	first := waiting("q", "a", long)
	second := waiting("q", "b", 0)
	k.park(first, second, second)
	again := waiting("q", "a", 0)
	again.Position.Retry, again.Data = 2, []byte("other")
	k.park(second, again, waiting("q", "c", 0))
	require.Positive(k, k.due(), "it waits as it did")
	k.like(first, k.head("q", "a"))
	k.lengths(lot, queue("q", 3))
	for _, id := range []string{"a", "b"} {
		k.remove("q", id, false)
	}
	k.remove("q", "c", true)
}

// parkOnce: an event has one Kafka key. Should a copy of it have another, it stays where it is.
func parkOnce(kt *kit) {
	k := parkingOf(kt)
	k.park(waiting("q", "a", 0))
	k.park(waiting("other", "a", 0))
	k.lengths(lot, queue("q", 1))
	k.head("other", "")
	k.park(waiting("other", "a", 0), waiting("other", "b", 0))
	k.lengths(lot, queue("other", 1), queue("q", 1))
	k.head("other", "b")
	k.park(waiting("s", "c", 0), waiting("t", "c", 0))
	k.lengths(lot, queue("other", 1), queue("q", 1), queue("s", 1))
	k.remove("t", "c", true) // not there
	k.head("s", "c")
	k.remove("q", "b", false)
	k.head("other", "b")
}

func parkRefused(kt *kit) {
	k := parkingOf(kt)
	other := waiting("q", "b", 0)
	other.Key.Scope = "somebody else"
	noID := waiting("q", "b", 0)
	noID.Key.ID = ""
	for _, bad := range []dedup.Parked{other, noID} {
		err := k.p.Park(k.ctx, lot, []dedup.Parked{waiting("q", "a", 0), bad, waiting("r", "c", 0)})
		require.Error(k, err)
		require.NotErrorIs(k, err, dedup.ErrUnavailable, "it would be repeated for ever")
		k.lengths(lot)
		k.due()
	}
	require.ErrorIs(k, k.p.Park(k.ctx, lot, []dedup.Parked{noID}), dedup.ErrKey)
}

func parkNothing(kt *kit) {
	k := parkingOf(kt)
	require.NoError(k, k.p.Park(k.ctx, lot, nil))
	require.Negative(k, k.due())
	k.lengths(lot)
	k.head("q", "")
	k.remove("q", "a", true)
	moved, err := k.p.Postpone(k.ctx, lot, waiting("q", "a", 0))
	require.NoError(k, err)
	require.False(k, moved)
	_, _, ok, err := k.p.FindParked(k.ctx, lot.Scope, lot.Topic, key("a"))
	require.NoError(k, err)
	require.False(k, ok)
	k.lengths(lot)
}

func parkWait(kt *kit) {
	k := parkingOf(kt)
	soon := k.waits(k.lease, func() {
		k.park(waiting("late", "a", long), waiting("soon", "b", k.lease), waiting("never", "c", -long), waiting("soon", "d", k.lease/4))
	})
	require.Greater(k, soon("c", "b"), long/2)
	k.remove("soon", "b", false)
	k.due("c", "d") // its own wait went by meanwhile
	later := k.waits(k.lease, func() { k.park(waiting("later", "e", 0), waiting("later", "f", k.lease)) })
	k.remove("later", "e", false)
	later("c", "d", "f") // what failed by itself waits by itself
}

// waits calls fn, which lets the head of a queue wait. What it returns requires that this head, the last of want, is due when its wait
// is over, and neither sooner nor later: until then the others of want are. No pace of the machine changes that.
func (k *parking) waits(wait time.Duration, fn func()) func(want ...string) time.Duration {
	began := time.Now()
	fn()
	begun := time.Now()
	return func(want ...string) time.Duration {
		k.Helper()
		for {
			asked := time.Now()
			heads, next, err := k.peer.Due(k.ctx, lot, 100)
			require.NoError(k, err)
			if len(heads) == len(want) {
				require.GreaterOrEqual(k, time.Since(began), wait, "%s is due too soon", want[len(want)-1])
				return k.due(want...)
			}
			require.Equal(k, want[:len(want)-1], ids(heads), "due")
			require.Positive(k, next)
			require.LessOrEqual(k, next, wait)
			require.LessOrEqual(k, asked.Sub(begun), wait+time.Millisecond, "%s is due too late", want[len(want)-1])
			k.h.Sleep(next + time.Millisecond)
		}
	}
}

func parkLots(kt *kit) {
	k := parkingOf(kt)
	scope, topic := lot, lot
	scope.Scope, topic.Topic = "invoices", "payments"
	for i, l := range []dedup.Lot{lot, scope, topic} {
		e := waiting("q", "a", 0)
		e.Key.Scope, e.Data = l.Scope, []byte{byte(i)}
		require.NoError(k, k.p.Park(k.ctx, l, []dedup.Parked{e}))
	}
	for i, l := range []dedup.Lot{lot, scope, topic} {
		heads, next, err := k.peer.Due(k.ctx, l, 9)
		require.NoError(k, err)
		require.Negative(k, next)
		require.Len(k, heads, 1)
		require.Equal(k, []byte{byte(i)}, heads[0].Data)
		require.Equal(k, l.Scope, heads[0].Key.Scope)
		k.lengths(l, queue("q", 1))
		empty, err := k.p.Remove(k.ctx, l, "q", dedup.Parked{Key: heads[0].Key})
		require.NoError(k, err)
		require.True(k, empty)
		k.lengths(l)
	}
}

// parkPartition: partitions were added to the topic, and the key has another one since.
func parkPartition(kt *kit) {
	k := parkingOf(kt)
	old := lot
	old.Partition = 0
	require.NoError(k, k.p.Park(k.ctx, old, []dedup.Parked{waiting("q", "a", 0), waiting("stays", "x", 0)}))
	k.lengths(lot)
	k.due()
	k.park(waiting("q", "b", 0))
	k.due("a")
	k.lengths(lot, queue("q", 2))
	k.lengths(old, queue("stays", 1))
	where, _, ok, err := k.p.FindParked(k.ctx, lot.Scope, lot.Topic, key("a"))
	require.NoError(k, err)
	require.True(k, ok)
	require.Equal(k, lot, where)
	head, ok, err := headOf(k.ctx, k.p, old, "q") // who had it may still be at work on it
	require.NoError(k, err)
	require.True(k, ok)
	require.Equal(k, key("a"), head.Key)
	head.Position.Retry = 1
	moved, err := k.p.Postpone(k.ctx, old, head)
	require.NoError(k, err)
	require.True(k, moved)
	empty, err := k.p.Remove(k.ctx, old, "q", dedup.Parked{Key: head.Key, Position: head.Position})
	require.NoError(k, err)
	require.False(k, empty)
	k.due("b")
}

func parkDown(k *kit) {
	p := parker(k, k.h.Down(k))
	_, _, err := p.Due(k.ctx, lot, 1)
	_, headOK, headErr := headOf(k.ctx, p, lot, "q")
	_, queuesErr := p.Queues(k.ctx, lot, "", 1)
	moved, postponeErr := p.Postpone(k.ctx, lot, waiting("q", "a", 0))
	empty, removeErr := p.Remove(k.ctx, lot, "q", dedup.Parked{Key: key("a")})
	_, _, found, findErr := p.FindParked(k.ctx, lot.Scope, lot.Topic, key("a"))
	for _, err := range []error{err, headErr, queuesErr, postponeErr, removeErr, findErr,
		p.Delay(k.ctx, lot, long, "q"), p.Park(k.ctx, lot, []dedup.Parked{waiting("q", "a", 0)})} {
		require.ErrorIs(k, err, dedup.ErrUnavailable)
	}
	require.False(k, headOK || moved || empty || found, "an error and an answer")
}

// headOf returns the first event of a queue.
func headOf(ctx context.Context, p dedup.Parker, lot dedup.Lot, queue string) (head dedup.Parked, ok bool, err error) {
	first, err := p.First(ctx, lot, queue, 1)
	if len(first) == 0 {
		return dedup.Parked{}, false, err
	}
	return first[0], true, err
}
