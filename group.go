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
	undone   error           // why it came to nothing, for them
	access   *storeAccess
	tx       txStore // nil: claimed
	end      int     // index of the message after the last
	tasks    []*task // the events to ask for, in the order of delivery, each once
	isolated bool    // the first event is not to be joined by others
	single   bool    // a group of one: its event is settled whatever that takes
	most     int     // how many events there may be
	sorted   []*task // entries by key, as the store wants them
}

var keySeed = maphash.MakeSeed()

// group finds what goes through the gate together with the next message.
func (b *batch) group() *eventGroup {
	first := &b.tasks[b.next]
	r := &eventGroup{batch: b, ctx: b.ctx, access: first.route.access, tx: first.tx, end: b.next, most: len(b.tasks)}
	r.isolated = b.mustBeIsolated(first)
	clear(b.keys)
	for r.end < len(b.tasks) && r.admit(b.look(r.end)) {
		r.end++
	}
	r.sort()
	return r
}

// mustBeIsolated reports whether an event goes by itself in any case.
func (b *batch) mustBeIsolated(e *task) bool {
	rt := e.route
	_, former := e.formerKey()
	switch {
	case e.isolated, former:
		return true
	case e.tx == nil: // at most once: an event is claimed just before it runs, else one that never ran would be given up
		return !rt.batch && rt.uncertain == DeadLetterUncertain
	default:
		return !rt.batch && (rt.ownTx || rt.limits != nil) || rt.txLimit.Off() || e.limit().Now() <= 1
	}
}

// admit takes a message into the run if it may be.
func (r *eventGroup) admit(e *task) bool {
	if e.passive() || e.leader != nil && e.leader.settled && e.leader.handled {
		return true
	}
	if e.destination != forHandler {
		return false
	}
	if len(r.tasks) > 0 && r.batch.mustWait(e) {
		return false
	}
	if len(r.tasks) > 0 {
		first := r.tasks[0].route
		apart := e.route != first && (e.route.special() || first.special())
		if r.isolated || apart || e.route.access != r.access || (e.tx == nil) != (r.tx == nil) || r.batch.mustBeIsolated(e) {
			return false
		}
	}
	most := min(r.most, e.most())
	if len(r.tasks) >= most || !r.inOrder(e) {
		return false
	}
	r.most = most
	e.leader = nil
	r.tasks = append(r.tasks, e)
	return true
}

// special reports whether a handler shares runs with no other: it has limits, or what is claimed for it must not wait for
// others (at most once).
func (b *bound) special() bool {
	return b.limits != nil || b.tx == nil && b.batch && b.uncertain == DeadLetterUncertain
}

// inOrder reports whether the order of the event's Kafka key is kept if it joins the run. Handlers of single events are
// called in order; one that takes many is called once for all its events, at the place of the first. Two keys with one
// hash cut a run too early, which does no harm.
func (r *eventGroup) inOrder(e *task) bool {
	if !r.batch.p.batches || e.message.Key == nil {
		return true
	}
	if r.batch.keys == nil {
		r.batch.keys = make(map[uint64]*task)
	}
	hash := maphash.Bytes(keySeed, e.message.Key)
	last := r.batch.keys[hash]
	switch {
	case last == nil:
	case last.request.Key == e.request.Key: // a copy is not run, and has the Kafka key of its original as a rule
		return true
	case last.route != e.route && (last.route.batch || e.route.batch):
		return false
	case e.route.batch && !e.route.sameKey:
		return false
	}
	r.batch.keys[hash] = e
	return true
}

// most is how many events of its handler may be in a run with this one now.
func (e *task) most() int {
	b := e.route
	switch {
	case b.tx != nil:
		return e.limit().Now()
	case b.batch:
		return b.maxBatch
	default:
		return b.limits.Ahead(b.ahead.Events(b.maxBatch))
	}
}

// sort puts the events in the order of their keys (P-04) and finds copies: those are settled with the first of them. A
// copy that differs in what the store compares ends the run before it.
func (r *eventGroup) sort() {
	r.sorted = append(make([]*task, 0, len(r.tasks)), r.tasks...)
	if len(r.sorted) < 2 {
		return
	}
	slices.SortStableFunc(r.sorted, func(a, b *task) int { return a.request.Key.Compare(b.request.Key) })
	end := r.end
	copies := false
	for i := 1; i < len(r.sorted); i++ {
		e, before := r.sorted[i], r.sorted[i-1]
		if before.leader != nil {
			before = before.leader
		}
		if e.request.Key != before.request.Key {
			continue
		}
		if e.request.Fingerprint == before.request.Fingerprint && e.request.Position == before.request.Position && e.route == before.route {
			e.leader, copies = before, true
		} else {
			end = min(end, e.at)
		}
	}
	if copies || end < r.end {
		r.keep(func(e *task) bool { return e.leader == nil && e.at < end })
		r.end = end
	}
}

// keep drops the other events from the run.
func (r *eventGroup) keep(wanted func(*task) bool) {
	unwanted := func(e *task) bool { return !wanted(e) }
	r.tasks = slices.DeleteFunc(r.tasks, unwanted)
	r.sorted = slices.DeleteFunc(r.sorted, unwanted)
}

// cut leaves the first n events.
func (r *eventGroup) cut(n int) {
	if n == len(r.tasks) {
		return
	}
	r.end = r.tasks[n].at
	r.keep(func(e *task) bool { return e.at < r.end })
}

// delivery is the one that request i is for.
func (r *eventGroup) delivery(i int) *task { return r.sorted[i] }

// requests returns the requests to the store, in the order of keys, and room for its answers. They are new each time: a call of the
// store that was given up may still use those of before.
func (r *eventGroup) requests() ([]dedup.Request, []dedup.Answer) {
	reqs := make([]dedup.Request, len(r.sorted))
	for i, e := range r.sorted {
		reqs[i] = e.request
	}
	return reqs, make([]dedup.Answer, len(reqs))
}

// advance moves over the settled events of the group. A group of one has more to do before its event counts as settled.
func (r *eventGroup) advance() {
	if !r.single {
		r.batch.advance()
	}
}

// call is one call of a handler: of one event, or of many.
type call struct {
	route *bound
	tasks []*task
	kept  *dedup.HeldClaims // if claimed
}

// calls puts the events that are to run in the order of their handlers' calls.
func (r *eventGroup) calls(fresh []*task) []call {
	calls := make([]call, 0, len(fresh))
	at := map[*bound]int{}
	for i, e := range fresh {
		if !e.route.batch {
			calls = append(calls, call{route: e.route, tasks: fresh[i : i+1]})
			continue
		}
		if n, ok := at[e.route]; ok {
			calls[n].tasks = append(calls[n].tasks, e)
			continue
		}
		at[e.route] = len(calls)
		calls = append(calls, call{route: e.route, tasks: append(make([]*task, 0, len(fresh)-i), e)})
	}
	return calls
}
