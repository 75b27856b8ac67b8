package idem

import (
	"context"
	"hash/maphash"
	"slices"

	"github.com/idem-go/idem/dedup"
)

// eventGroup is a part of a batch that goes through the gate together.
type eventGroup struct {
	batch    *batch
	ctx      context.Context // of the batch, or what those who watch made of it
	failure  error           // why it came to nothing, for them
	access   *storeAccess
	tx       txStore // nil: claimed
	end      int     // index of the message after the last
	tasks    []*task // the events to ask for, in the order of delivery, each once
	isolated bool    // the first event is not to be joined by others
	single   bool    // a group of one: its event is settled whatever that takes
	maxTasks int     // how many events there may be
	sorted   []*task // entries by key, as the store wants them
}

var keySeed = maphash.MakeSeed()

// group finds what goes through the gate together with the next message.
func (b *batch) group() *eventGroup {
	first := &b.tasks[b.next]
	g := &eventGroup{batch: b, ctx: b.ctx, access: first.route.access, tx: first.tx, end: b.next, maxTasks: len(b.tasks)}
	g.isolated = b.mustBeIsolated(first)
	clear(b.keys)
	for g.end < len(b.tasks) && g.admit(b.resolve(g.end)) {
		g.end++
	}
	g.sort()
	return g
}

// mustBeIsolated reports whether an event goes by itself in any case.
func (b *batch) mustBeIsolated(t *task) bool {
	rt := t.route
	_, former := t.formerKey()
	switch {
	case t.isolated, former:
		return true
	case t.tx == nil: // at most once: an event is claimed just before it runs, else one that never ran would be given up
		return !rt.batch && rt.uncertain == DeadLetterUncertain
	default:
		return !rt.batch && (rt.ownTx || rt.limits != nil) || rt.txLimit.Off() || t.limit().Now() <= 1
	}
}

// admit takes a message into the run if it may be.
func (g *eventGroup) admit(t *task) bool {
	if t.passive() || t.leader != nil && t.leader.settled && t.leader.handled {
		return true
	}
	if t.destination != destHandler {
		return false
	}
	if len(g.tasks) > 0 && g.batch.mustWait(t) {
		return false
	}
	if len(g.tasks) > 0 {
		first := g.tasks[0].route
		apart := t.route != first && (t.route.ungrouped() || first.ungrouped())
		if g.isolated || apart || t.route.access != g.access || (t.tx == nil) != (g.tx == nil) || g.batch.mustBeIsolated(t) {
			return false
		}
	}
	most := min(g.maxTasks, t.maxGroup())
	if len(g.tasks) >= most || !g.inOrder(t) {
		return false
	}
	g.maxTasks = most
	t.leader = nil
	g.tasks = append(g.tasks, t)
	return true
}

// special reports whether a handler shares runs with no other: it has limits, or what is claimed for it must not wait for
// others (at most once).
func (b *bound) ungrouped() bool {
	return b.limits != nil || b.tx == nil && b.batch && b.uncertain == DeadLetterUncertain
}

// inOrder reports whether the order of the event's Kafka key is kept if it joins the run. Handlers of single events are
// called in order; one that takes many is called once for all its events, at the place of the first. Two keys with one
// hash cut a run too early, which does no harm.
func (g *eventGroup) inOrder(t *task) bool {
	if !g.batch.p.batches || t.message.Key == nil {
		return true
	}
	if g.batch.keys == nil {
		g.batch.keys = make(map[uint64]*task)
	}
	hash := maphash.Bytes(keySeed, t.message.Key)
	last := g.batch.keys[hash]
	switch {
	case last == nil:
	case last.request.Key == t.request.Key: // a copy is not run, and has the Kafka key of its original as a rule
		return true
	case last.route != t.route && (last.route.batch || t.route.batch):
		return false
	case t.route.batch && !t.route.sameKey:
		return false
	}
	g.batch.keys[hash] = t
	return true
}

// most is how many events of its handler may be in a run with this one now.
func (t *task) maxGroup() int {
	b := t.route
	switch {
	case b.tx != nil:
		return t.limit().Now()
	case b.batch:
		return b.maxBatch
	default:
		return b.limits.Ahead(b.ahead.Events(b.maxBatch))
	}
}

// sort puts the events in the order of their keys (P-04) and finds copies: those are settled with the first of them. A
// copy that differs in what the store compares ends the run before it.
func (g *eventGroup) sort() {
	g.sorted = append(make([]*task, 0, len(g.tasks)), g.tasks...)
	if len(g.sorted) < 2 {
		return
	}
	slices.SortStableFunc(g.sorted, func(a, b *task) int { return a.request.Key.Compare(b.request.Key) })
	end := g.end
	copies := false
	for i := 1; i < len(g.sorted); i++ {
		t, before := g.sorted[i], g.sorted[i-1]
		if before.leader != nil {
			before = before.leader
		}
		if t.request.Key != before.request.Key {
			continue
		}
		if t.request.Fingerprint == before.request.Fingerprint && t.request.Position == before.request.Position && t.route == before.route {
			t.leader, copies = before, true
		} else {
			end = min(end, t.index)
		}
	}
	if copies || end < g.end {
		g.filter(func(t *task) bool { return t.leader == nil && t.index < end })
		g.end = end
	}
}

// keep drops the other events from the run.
func (g *eventGroup) filter(wanted func(*task) bool) {
	unwanted := func(t *task) bool { return !wanted(t) }
	g.tasks = slices.DeleteFunc(g.tasks, unwanted)
	g.sorted = slices.DeleteFunc(g.sorted, unwanted)
}

// cut leaves the first n events.
func (g *eventGroup) cut(n int) {
	if n == len(g.tasks) {
		return
	}
	g.end = g.tasks[n].index
	g.filter(func(t *task) bool { return t.index < g.end })
}

// delivery is the one that request i is for.
func (g *eventGroup) task(i int) *task { return g.sorted[i] }

// requests returns the requests to the store, in the order of keys, and room for its answers. They are new each time: a call of the
// store that was given up may still use those of before.
func (g *eventGroup) requests() ([]dedup.Request, []dedup.Answer) {
	reqs := make([]dedup.Request, len(g.sorted))
	for i, t := range g.sorted {
		reqs[i] = t.request
	}
	return reqs, make([]dedup.Answer, len(reqs))
}

// advance moves over the settled events of the group. A group of one has more to do before its event counts as settled.
func (g *eventGroup) advance() {
	if !g.single {
		g.batch.advance()
	}
}

// call is one call of a handler: of one event, or of many.
type call struct {
	route *bound
	tasks []*task
	held  *dedup.HeldClaims // if claimed
}

// calls puts the events that are to run in the order of their handlers' calls.
func (g *eventGroup) calls(fresh []*task) []call {
	calls := make([]call, 0, len(fresh))
	at := map[*bound]int{}
	for i, t := range fresh {
		if !t.route.batch {
			calls = append(calls, call{route: t.route, tasks: fresh[i : i+1]})
			continue
		}
		if n, ok := at[t.route]; ok {
			calls[n].tasks = append(calls[n].tasks, t)
			continue
		}
		at[t.route] = len(calls)
		calls = append(calls, call{route: t.route, tasks: append(make([]*task, 0, len(fresh)-i), t)})
	}
	return calls
}
