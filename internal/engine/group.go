package engine

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/throttle"
	"github.com/idem-go/idem/observe"
)

// eventGroup is a sequence of events of a batch that are claimed and run together.
type eventGroup struct {
	batch    *batch
	ctx      context.Context // context of the batch, or one that observers derived from it
	failure  error           // reason why the group settled no event, for observers
	access   *storeAccess
	tx       TxStore         // nil for claimed handlers
	end      int             // index of the message behind the last one
	tasks    []*task         // the events to claim, in the order of delivery, each key once
	isolated bool            // the first event shares the group with no other
	single   bool            // only one event, which is retried until settled
	maxTasks int             // the largest number of tasks
	sorted   []*task         // tasks in the order of event keys
	permit   throttle.Permit // permit of the limits of a batch handler, for its one call
}

var keySeed = maphash.MakeSeed()

// formGroup forms the group that begins with the next message.
func (b *batch) formGroup() *eventGroup {
	first := &b.tasks[b.next]
	g := &eventGroup{
		batch: b, ctx: b.ctx, access: first.route.access, tx: first.tx,
		end: b.next, maxTasks: len(b.tasks),
	}
	g.isolated = b.mustBeIsolated(first)
	clear(b.keys)
	for g.end < len(b.tasks) && g.admit(b.resolve(g.end)) {
		g.end++
	}
	g.sort()
	return g
}

// mustBeIsolated reports whether an event needs a group of its own.
func (b *batch) mustBeIsolated(t *task) bool {
	rt := t.route
	_, former := t.formerKey()
	switch {
	case t.isolated, former, rt.paused():
		return true
	// At most once: the claim must directly precede the run. Else a crash would give up an event
	// that never ran.
	case t.tx == nil:
		return !rt.Batch && rt.atMostOnce()
	default:
		return !rt.Batch && (rt.TxPerEvent || rt.limits != nil) || rt.txLimit.Off() ||
			t.limit().Now() <= 1
	}
}

// admit adds a message to the group if the message may join.
func (g *eventGroup) admit(t *task) bool {
	if t.passive() || t.leader != nil && t.leader.settled && t.leader.handled {
		return true
	}
	if t.destination != destHandler {
		return false
	}
	if len(g.tasks) > 0 && g.batch.p.mustWait(t) {
		return false
	}
	if len(g.tasks) > 0 {
		first := g.tasks[0].route
		apart := t.route != first && (t.route.ungrouped() || first.ungrouped())
		if g.isolated || apart || t.route.access != g.access || (t.tx == nil) != (g.tx == nil) ||
			g.batch.mustBeIsolated(t) {
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

// inOrder reports whether the order of the Kafka key is kept if the event joins the group. Handlers
// of single events are called in order. A batch handler is called once for all the events, at the
// place of the first one. Two keys with the same hash end a group early, which is harmless.
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
	// A copy does not run, and normally has the Kafka key of its original.
	case last.request.Key == t.request.Key:
		return true
	case last.route != t.route && (last.route.Batch || t.route.Batch):
		return false
	case t.route.Batch && !t.route.SameKey:
		return false
	}
	g.batch.keys[hash] = t
	return true
}

// maxGroup returns the present limit of events for a group with this event.
func (t *task) maxGroup() int {
	b := t.route
	switch {
	case b.tx != nil:
		return t.limit().Now()
	case b.Batch:
		return b.MaxBatch
	default:
		return b.limits.Ahead(b.ahead.Events(b.MaxBatch))
	}
}

// sort orders the tasks by event key (P-04) and removes copies. A copy is settled with the first
// task of its key. The group ends before a copy that differs in content, position or handler.
func (g *eventGroup) sort() {
	g.sorted = append(make([]*task, 0, len(g.tasks)), g.tasks...)
	if len(g.sorted) < 2 {
		return
	}
	slices.SortStableFunc(g.sorted,
		func(a, b *task) int { return a.request.Key.Compare(b.request.Key) })
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
		if t.request.Fingerprint == before.request.Fingerprint &&
			t.request.Position == before.request.Position && t.route == before.route {
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

// filter keeps the wanted tasks only.
func (g *eventGroup) filter(wanted func(*task) bool) {
	unwanted := func(t *task) bool { return !wanted(t) }
	g.tasks = slices.DeleteFunc(g.tasks, unwanted)
	g.sorted = slices.DeleteFunc(g.sorted, unwanted)
}

// cut shortens the group to the first n tasks.
func (g *eventGroup) cut(n int) {
	if n == len(g.tasks) {
		return
	}
	g.end = g.tasks[n].index
	g.filter(func(t *task) bool { return t.index < g.end })
}

// requests returns new slices for the requests and the answers of the store, in the order of keys.
// No slice is reused, because an abandoned call of the store may still access it.
func (g *eventGroup) requests() ([]dedup.Request, []dedup.Answer) {
	reqs := make([]dedup.Request, len(g.sorted))
	for i, t := range g.sorted {
		reqs[i] = t.request
	}
	return reqs, make([]dedup.Answer, len(reqs))
}

// advance moves the batch over the settled tasks. For a group of one, [batch.settleAlone] does
// that.
func (g *eventGroup) advance() {
	if !g.single {
		g.batch.advance()
	}
}

// calls returns the handler calls for the fresh tasks, in the order of their first events.
func (g *eventGroup) calls(fresh []*task) []handlerCall {
	calls := make([]handlerCall, 0, len(fresh))
	at := map[*bound]int{}
	for i, t := range fresh {
		if !t.route.Batch {
			calls = append(calls, handlerCall{route: t.route, tasks: fresh[i : i+1]})
			continue
		}
		if n, ok := at[t.route]; ok {
			calls[n].tasks = append(calls[n].tasks, t)
			continue
		}
		at[t.route] = len(calls)
		calls = append(calls,
			handlerCall{route: t.route, tasks: append(make([]*task, 0, len(fresh)-i), t)})
	}
	return calls
}

// observed does the work of an attempt and reports its begin and its end to observers.
func (g *eventGroup) observed(work func() error) (err error) {
	p := g.batch.p
	if len(p.obs.ClaimGroup) == 0 {
		return work()
	}
	event := &observe.ClaimGroup{
		Deliveries: taskList(g.tasks), Group: p.cfg.Group, Transactional: g.tx != nil,
	}
	g.failure = nil
	ctx := g.ctx
	end := p.beginClaimGroup(&g.ctx, event)
	defer func() {
		g.ctx = ctx
		var outage error
		if g.single {
			outage = g.tasks[0].pending.outage
		}
		end(firstOf(err, outage, g.failure))
	}()
	return work()
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// beginClaimGroup reports the begin of an attempt and replaces the context. Each observer gets its
// own context at the end.
func (p *Processor) beginClaimGroup(
	ctx *context.Context, group *observe.ClaimGroup,
) (end func(err error)) {
	contexts := make([]context.Context, len(p.obs.ClaimGroup))
	for i, o := range p.obs.ClaimGroup {
		*ctx = o.BeginClaimGroup(*ctx, group) //nolint:fatcontext // one for each observer
		contexts[i] = *ctx
	}
	return func(err error) {
		group.Err = err
		for i := len(p.obs.ClaimGroup) - 1; i >= 0; i-- {
			p.obs.ClaimGroup[i].EndClaimGroup(contexts[i], group)
		}
	}
}

// taskList implements [observe.Deliveries].
type taskList []*task

func (l taskList) Len() int { return len(l) }

func (l taskList) Message(i int) *idemtype.Message { return l[i].message }

func (l taskList) Key(i int) dedup.Key { return l[i].request.Key }

// awaitPauses waits as long as a failed call or transaction with these events asked for. The events of
// that call wait at the same time. No claim is held.
func awaitPauses(ctx context.Context, tasks ...*task) error {
	var until time.Time
	for _, t := range tasks {
		if t.restUntil.After(until) {
			until = t.restUntil
		}
	}
	if time.Until(until) <= 0 {
		return nil
	}
	return sleepUntil(ctx, until)
}

// restFor lets the event wait before the next run, if such a wait is possible in place. A run by
// itself decides about a longer wait.
func (t *task) restFor(pause time.Duration) {
	if now := time.Now(); pause > 0 && t.route.waitsInPlace(pause, &t.attempts, now) {
		t.restUntil = now.Add(pause)
	}
}

// payRetries pays the retry budget for the delayed copies of a group. The group ends before the
// first copy that must wait. That copy pays by itself.
func (g *eventGroup) payRetries() {
	if len(g.tasks) == 1 {
		return
	}
	for i, e := range g.tasks {
		if e.request.Position.Retry == 0 || e.retryPaid {
			continue
		}
		if e.route.budget.Spend() > 0 {
			e.route.budget.Refund()
			g.cut(max(i, 1))
			return
		}
		e.retryPaid = true
	}
}

// settleSingle repeats attempts until the only event of the group is settled, or must be read
// again. After an error the event is not settled and must come again.
func (g *eventGroup) settleSingle() error {
	t, ctx := g.tasks[0], g.ctx
	again := t.request.Position.Retry > 0
	for outages := 1; ; again = false {
		var err error
		switch s := t.pending; {
		case s.outage != nil:
			err = t.waitOut(ctx, outages, s.outage)
			outages++
		case !s.notBefore.IsZero(): // the pauses of a call's events pass at the same time
			err = sleepUntil(ctx, s.notBefore)
			again = true
		}
		t.pending = attemptResult{}
		if err == nil && again && !t.retryPaid {
			err = t.afford(ctx)
		}
		if err != nil {
			return err
		}
		err = g.batch.p.allowed(ctx, t, func() error { return g.observed(g.runOnce) })
		if err != nil || t.settled || t.destination == destReread {
			return err
		}
	}
}

// allowed does an attempt when the breaker and the limits of the handler allow it.
func (p *Processor) allowed(ctx context.Context, t *task, attempt func() error) (err error) {
	if t.route.breaker != nil {
		if err := p.awaitBreaker(ctx, t); err != nil {
			return err
		}
		defer func() { t.trial.End() }() // also if an observer panics
	}
	if t.permit, err = t.route.limits.Acquire(ctx, t.budget); err != nil {
		return err
	}
	defer func() { t.permit.End(true) }()
	return attempt()
}

// endTurns gives the rights to a call back when its handlers have returned.
func (g *eventGroup) endTurns() {
	g.permit.End(true)
	g.tasks[0].endTurn(true) // only the event of a group of one has such rights
}

// runOnce is one attempt of a group: claim, run, record.
func (g *eventGroup) runOnce() error {
	if g.tx != nil {
		return g.runInTx()
	}
	return g.runClaimed()
}

// errLapsed is the reason for a wait after a lease that ended before its handler began.
var errLapsed = fmt.Errorf("%w: a lease was over before its handler began", dedup.ErrUnavailable)

// refusedOutcome returns the outcome of an event that must not run although the claim is granted.
// outcome.refused is false if the event may run.
func (t *task) refusedOutcome() outcome {
	o := t.decision.outcome
	if !o.refused {
		o = t.decodeFresh()
	}
	if o.refused {
		t.attempt = t.begunRuns(t.answer, o)
	}
	return o
}

// begunRuns returns the known number of begun runs of a refused event. An interrupted run counts,
// and so does a failed reading.
func (t *task) begunRuns(a dedup.Answer, o outcome) int {
	known := t.failedRuns(a)
	switch {
	case o.class == idemtype.ClassUncertain, o.unbegun:
		return known + 1
	case o.class == idemtype.ClassCrashLoop:
		return known + int(a.Takeovers)
	}
	return known
}
