package storetest

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// deferModel holds the queues of one scope and topic as the contract describes them. A wait is
// zero or has no end.
type deferModel struct {
	queues map[string][]dedup.Deferred
	owner  map[string]int32 // the partition of each queue
	rests  map[string]bool  // queues that are delayed, for longer than the test
}

func (m *deferModel) find(k dedup.Key) (queue string, i int) {
	for name, q := range m.queues {
		if i := slices.IndexFunc(q, func(e dedup.Deferred) bool { return e.Key == k }); i >= 0 {
			return name, i
		}
	}
	return "", -1
}

func (m *deferModel) deferEvent(partition int32, events []dedup.Deferred) {
	for _, e := range events {
		if _, i := m.find(e.Key); i < 0 {
			m.queues[e.Queue] = append(m.queues[e.Queue], e)
		}
	}
	for _, e := range events {
		if len(m.queues[e.Queue]) > 0 {
			m.owner[e.Queue] = partition
		}
	}
}

func (m *deferModel) postpone(e dedup.Deferred) bool {
	name, i := m.find(e.Key)
	if i < 0 || name != e.Queue {
		return false
	}
	old := &m.queues[name][i]
	if !old.Position.Before(e.Position) && (!e.Blocked || old.Position != e.Position) {
		return false
	}
	old.Position, old.Wait, old.Blocked, old.Data = e.Position, e.Wait, e.Blocked, e.Data
	if i == 0 {
		delete(m.rests, name)
	}
	return true
}

func (m *deferModel) remove(queue string, k dedup.Key, p dedup.Position) (empty bool) {
	name, i := m.find(k)
	if i >= 0 && name == queue {
		if at := m.queues[name][i].Position; at.Generation == p.Generation && at.Retry <= p.Retry {
			m.queues[name] = slices.Delete(m.queues[name], i, i+1)
			if i == 0 {
				delete(m.rests, name)
			}
		}
	}
	if len(m.queues[queue]) == 0 {
		delete(m.queues, queue)
		delete(m.owner, queue)
		return true
	}
	return false
}

// due are the IDs of the heads that may run, sorted, and whether others wait.
func (m *deferModel) due(partition int32) (heads []string, later bool) {
	for name, q := range m.queues {
		switch head := &q[0]; {
		case m.owner[name] != partition || head.Blocked:
		case head.Wait > 0 || m.rests[name]:
			later = true
		default:
			heads = append(heads, head.Key.ID)
		}
	}
	slices.Sort(heads)
	return heads, later
}

func (m *deferModel) list(partition int32) []dedup.Queue {
	out := []dedup.Queue{}
	for name, q := range m.queues {
		if m.owner[name] == partition {
			out = append(out, dedup.Queue{Name: name, Length: len(q), Blocked: q[0].Blocked})
		}
	}
	slices.SortFunc(out, func(a, b dedup.Queue) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// deferWalk is one random walk beside the model.
type deferWalk struct {
	*deferral
	rng   *rand.Rand
	model deferModel
	ages  deferAges
}

var deferNames = []string{"", "\x00", "k", "k1", "\xff"}

func deferRandom(kt *kit) {
	k := deferralOf(kt)
	rng, seed := k.random()
	w := &deferWalk{deferral: k, rng: rng, model: deferModel{make(map[string][]dedup.Deferred),
		make(map[string]int32), make(map[string]bool)}}
	w.ages = deferAges{horizon: horizonAt, records: make(map[string]dedup.Verdict)}
	for step := range steps(600) {
		if step%100 == 99 {
			w.forget()
		}
		l := part
		l.Partition = int32(rng.IntN(2))
		p := []dedup.Deferrer{w.p, w.peer}[rng.IntN(2)]
		switch n := rng.IntN(100); {
		case n < 30:
			w.deferEvent(p, l)
		case n < 46:
			w.remove(p, l)
		case n < 64:
			w.postpone(p, l)
		case n < 74:
			w.due(p, l)
		case n < 78:
			w.delay(p, l)
		case n < 84:
			w.claim()
		default:
			w.read(p, l)
		}
		if w.Failed() {
			w.Fatalf("step %d of seed %d", step, seed)
		}
	}
}

func (w *deferWalk) event() dedup.Deferred {
	n := w.rng.IntN(deferEvents)
	e := waiting(deferNames[w.rng.IntN(len(deferNames))], numbered("e", n), 0)
	e.Origin.Time = madeAt(n)
	// Mostly a deferred event with the same Kafka key.
	if name, i := w.model.find(e.Key); i >= 0 && w.rng.IntN(5) > 0 {
		e.Queue, e.Position = name, w.model.queues[name][i].Position
	}
	if w.rng.IntN(2) == 0 {
		e.Wait = long * 10
	}
	e.Data = []byte{byte(w.rng.IntN(256))}
	return e
}

// nearby is a position at, before or behind p.
func (w *deferWalk) nearby(p dedup.Position) dedup.Position {
	switch w.rng.IntN(8) {
	case 0:
		p.Generation++
		p.Retry = 0
	case 1:
		p.Generation -= min(p.Generation, 1)
	case 2, 3:
		p.Retry++
	case 4:
		p.Retry -= min(p.Retry, 1)
	}
	return p
}

func (w *deferWalk) deferEvent(p dedup.Deferrer, l dedup.DeferredPartition) {
	events := make([]dedup.Deferred, w.rng.IntN(6))
	for i := range events {
		events[i] = w.event()
	}
	require.NoError(w, p.Defer(w.ctx, l, events))
	w.model.deferEvent(l.Partition, events)
}

// several returns at most n events with different keys, at least one. Most are in one queue.
func (w *deferWalk) several(n int) (queue string, events []dedup.Deferred) {
	events = []dedup.Deferred{w.event()}
	queue = events[0].Queue
	for range n - 1 {
		e := w.event()
		if q := w.model.queues[queue]; len(q) > 0 && w.rng.IntN(4) > 0 {
			e = q[w.rng.IntN(len(q))]
		}
		same := func(o dedup.Deferred) bool { return o.Key == e.Key }
		if !slices.ContainsFunc(events, same) {
			events = append(events, e)
		}
	}
	return queue, events
}

func (w *deferWalk) remove(p dedup.Deferrer, l dedup.DeferredPartition) {
	name, events := w.several(1 + w.rng.IntN(4))
	var gone []dedup.Deferred
	var ended bool
	for _, e := range events {
		at := w.nearby(e.Position)
		gone = append(gone, dedup.Deferred{Key: e.Key, Position: at})
		ended = w.model.remove(name, e.Key, at)
	}
	empty, err := p.Remove(w.ctx, l, name, gone...)
	require.NoError(w, err)
	require.Equal(w, ended, empty, "remove %v from %q", ids(gone), name)
}

func (w *deferWalk) postpone(p dedup.Deferrer, l dedup.DeferredPartition) {
	e := w.event()
	e.Position, e.Blocked = w.nearby(e.Position), w.rng.IntN(3) == 0
	moved, err := p.Postpone(w.ctx, l, e)
	require.NoError(w, err)
	require.Equal(w, w.model.postpone(e), moved, "postpone %s in %q to %v", e.Key, e.Queue,
		e.Position)
}

func (w *deferWalk) delay(p dedup.Deferrer, l dedup.DeferredPartition) {
	name := deferNames[w.rng.IntN(len(deferNames))]
	require.NoError(w, p.Delay(w.ctx, l, long*10, name))
	if q := w.model.queues[name]; len(q) > 0 && !q[0].Blocked {
		w.model.rests[name] = true
	}
}

func (w *deferWalk) due(p dedup.Deferrer, l dedup.DeferredPartition) {
	want, later := w.model.due(l.Partition)
	limit := w.rng.IntN(len(deferNames) + 1)
	heads, next, err := p.Due(w.ctx, l, limit)
	require.NoError(w, err)
	got := ids(heads)
	slices.Sort(got)
	require.Len(w, got, min(limit, len(want)))
	require.Subset(w, want, got)
	switch {
	case limit < len(want):
		require.Zero(w, next)
	case later:
		require.Positive(w, next)
	default:
		require.Negative(w, next)
	}
	for _, e := range heads {
		w.like(w.model.queues[e.Queue][0], e)
	}
}

func (w *deferWalk) read(p dedup.Deferrer, l dedup.DeferredPartition) {
	w.lengths(l, w.model.list(l.Partition)...)
	e := w.event()
	q, limit := w.model.queues[e.Queue], w.rng.IntN(9)
	first, err := p.First(w.ctx, l, e.Queue, limit)
	require.NoError(w, err)
	w.alike(q[:min(limit, len(q))], first)
	name, i := w.model.find(e.Key)
	where, found, ok, err := p.FindDeferred(w.ctx, part.Scope, part.Topic, e.Key)
	require.NoError(w, err)
	require.Equal(w, i >= 0, ok)
	if ok {
		w.like(w.model.queues[name][i], found)
		require.Equal(w, w.model.owner[name], where.Partition)
	}
	w.readThose(p)
}

func (w *deferWalk) readThose(p dedup.Deferrer) {
	_, asked := w.several(1 + w.rng.IntN(5))
	var keys []dedup.Key
	var want []dedup.Deferred
	for _, e := range asked {
		keys = append(keys, e.Key)
		if name, i := w.model.find(e.Key); i >= 0 {
			want = append(want, w.model.queues[name][i])
		}
	}
	those, err := p.DeferredOf(w.ctx, part.Scope, part.Topic, keys...)
	require.NoError(w, err)
	w.alike(byID(want), byID(those))
}

// alike requires events to equal the deferred ones, in this order. A wait of the model is zero, or
// has no end.
func (w *deferWalk) alike(want, got []dedup.Deferred) {
	w.Helper()
	require.Equal(w, ids(want), ids(got))
	for i := range want {
		w.like(want[i], got[i])
		require.Equal(w, want[i].Wait > 0, got[i].Wait > 0, "the wait of %s", got[i].Key)
	}
}
