package idem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file is about transactions that many events share. Only a rolled-back transaction is ever taken apart, so nothing
// in here can make an effect happen twice (rule 2).

// txGroup is one such transaction.
type txGroup struct {
	events  *eventGroup
	reqs    []dedup.Request
	answers []dedup.Answer
	calls   []call // of what is fresh
	took    []time.Duration

	began    time.Time
	watched  bool // its start is counted
	lookOnly bool // look only: the partition has just come, and what killed its former owner may be in here
	ran      bool
	current  atomic.Int32 // index into calls
	deadline atomic.Int64 // of the current call; Unix nanoseconds
	failed   int          // index of the call that failed, or -1
	err      error        // of that call, as it returned it
	outcome  outcome      // of that call
}

// runInTx claims the events of the group, runs those that are fresh, and commits, in one transaction.
func (r *eventGroup) runInTx() error {
	p, ctx := r.batch.p, r.ctx
	if r.single {
		if done, err := r.refuseBeforeTx(); done {
			return err
		}
	}
	permit, err := r.permit()
	if err != nil {
		return err
	}
	g := &txGroup{events: r, failed: -1, lookOnly: !r.single && r.guarded()}
	defer func() { permit.End(g.ran) }()
	g.reqs, g.answers = r.requests()
	hard, release := p.stopContext(ctx, false)
	defer release()
	free, err := r.access.slot(hard, r.batch.budget) // before a start is counted: waiting for it is no crash
	if err != nil {
		r.tasks[0].permit.End(false)
		return err
	}
	free = sync.OnceFunc(free)
	defer free() // also if an observer panics
	if r.single {
		if done, err := g.countStart(ctx, free); done {
			return err
		}
	}
	g.began = time.Now()
	err = g.claim(hard)
	free() // nothing that follows needs it
	looked := errors.Is(err, errLookOnly)
	if looked {
		err = nil
	} else if err == nil {
		g.keepAnswers()
	}
	g.observe(ctx, looked, err)
	switch {
	case r.single:
		return g.settleSingle(ctx, hard, err)
	case err != nil:
		r.undone = err
		return g.rolledBack(hard, g.began, err)
	}
	r.access.up(ctx, p, g.began)
	if looked {
		g.settleKnown()
	} else {
		g.committed()
	}
	return nil
}

// observe reports the transaction and its answers to observers.
func (g *txGroup) observe(ctx context.Context, looked bool, err error) {
	p := g.events.batch.p
	if !looked {
		p.storeCall(ctx, g.events.access, VerbTransaction, len(g.reqs), g.answers, g.began, err)
	}
	for i, e := range g.events.sorted {
		if !looked || e.known() { // the others have only been looked at
			p.observeClaim(ctx, e, g.answers[i].Verdict, g.began, err)
		}
	}
}

// errLookOnly ends a transaction in which nothing is to be run.
var errLookOnly = errors.New("only looked")

// guarded reports whether the store counts starts and an event is of a partition that has just come. Such events run one
// by one (rule 18), while those among them that are known already are still settled together.
func (r *eventGroup) guarded() bool {
	if r.access.counter == nil {
		return false
	}
	topic, partition, last := "", int32(-1), false
	for _, e := range r.tasks {
		if e.message.Partition != partition || e.message.Topic != topic {
			topic, partition = e.message.Topic, e.message.Partition
			last = r.batch.p.guarded(e.message)
		}
		if last {
			return true
		}
	}
	return false
}

// settleKnown settles what is known. The first of the others are run by themselves.
func (g *txGroup) settleKnown() {
	b := g.events.batch
	watched := guardedEvents
	for _, e := range g.events.tasks {
		if e.known() {
			b.p.notifyKnown(g.events.ctx, e, e.answer)
			e.settled = true
		} else if watched--; watched >= 0 {
			e.isolated = true
		}
	}
	b.advance()
}

// errSlow is the cause when a store does not answer a claim or a commit.
var errSlow = fmt.Errorf("%w: no answer from a transaction", dedup.ErrUnavailable)

// claim calls the store, which calls the handlers, perhaps more than once. Each handler has its own time. The store has txSlack before
// the first handler, and as much after the last.
func (g *txGroup) claim(hard context.Context) error {
	ctx, cancel := context.WithCancelCause(hard)
	defer cancel(context.Canceled)
	slow := time.AfterFunc(txSlack, func() { cancel(errSlow) })
	defer func() { slow.Stop() }()
	limit := time.Duration(0)
	for _, e := range g.events.tasks {
		limit = max(limit, e.route.timeout)
	}
	err := g.events.tx.claimTx(ctx, limit, g.reqs, g.answers, func(tx any) ([]dedup.Completion, error) {
		slow.Stop()
		if cause := context.Cause(ctx); cause != nil { // the store calls although its time is over
			return nil, cause
		}
		if g.lookOnly || !g.events.single && g.behindDeferred() {
			g.keepAnswers() // what is known stays so
			return nil, errLookOnly
		}
		g.ran = true
		err := g.run(ctx, cancel, tx)
		slow = time.AfterFunc(txSlack, func() { cancel(errSlow) })
		return nil, err
	})
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		err = fmt.Errorf("%w: %w", errSlow, err)
	}
	return err
}

// run makes the calls in a goroutine of its own, as [Processor.run] does for one.
func (g *txGroup) run(hard context.Context, abort context.CancelCauseFunc, tx any) error {
	g.failed, g.err, g.outcome = -1, nil, outcome{} // of the run before, if the store runs it again
	g.calls = g.events.calls(g.fresh())
	if len(g.calls) == 0 {
		return nil
	}
	inputs := make([][]input, len(g.calls))
	all := make([]input, 0, len(g.events.tasks))
	for i, c := range g.calls {
		n := len(all)
		for _, e := range c.tasks {
			all = append(all, e.input())
		}
		inputs[i] = all[n:len(all):len(all)]
	}
	ctx, cancel := context.WithCancelCause(hard)
	defer cancel(context.Canceled)
	g.took = make([]time.Duration, len(g.calls))
	g.begin(0)
	done := make(chan error, 1)
	go g.work(ctx, tx, inputs, done)
	g.outcome = g.wait(ctx, hard, cancel, abort, done)
	var failed *callError
	switch {
	case errors.As(g.outcome.err, &failed):
		g.failed, g.err = failed.call, failed.err
	case g.outcome.meaning != succeeded: // it still runs: what it is at is all there is to know
		g.outcome.meaning = abandoned
		g.failed = int(g.current.Load())
		if g.events.single {
			return errors.Join(ErrAbandoned, g.outcome.err)
		}
		// It may have ended the transaction before it hung: then there are claims to be taken back.
		return errors.Join(ErrAbandoned, g.outcome.err, &dedup.TxEndedError{Unrun: g.unrun()})
	}
	g.notifyHandled(ctx)
	if errors.Is(g.err, dedup.ErrTxEnded) && !g.events.single {
		return &dedup.TxEndedError{Unrun: g.unrun()}
	}
	return g.err
}

// behindDeferred reports whether an event waits for a later attempt in the table: what is behind it must not run before that is
// known (rule 4).
func (g *txGroup) behindDeferred() bool {
	for i, e := range g.events.sorted {
		if g.answers[i].Verdict == dedup.Rescheduled && e.route.mode == keyOrdered {
			return true
		}
	}
	return false
}

// keepAnswers keeps the answers: the store takes them back when the transaction is.
func (g *txGroup) keepAnswers() {
	for i, e := range g.events.sorted {
		e.answer = g.answers[i]
		e.decision = verdict(e.answer, &e.route.policy, &e.attempts, e.facts(e.answer))
	}
}

// fresh returns the events that are to run, in the order of delivery.
func (g *txGroup) fresh() []*task {
	g.keepAnswers()
	fresh := make([]*task, 0, len(g.events.tasks))
	for _, e := range g.events.tasks {
		if e.answer.Verdict == dedup.Fresh {
			e.attempt, e.uncertain = e.failures+1, false
			fresh = append(fresh, e)
		}
	}
	return fresh
}

// callError says which call failed.
type callError struct {
	call int
	err  error
}

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

func (g *txGroup) begin(i int) {
	g.current.Store(int32(i))
	g.deadline.Store(time.Now().Add(g.calls[i].route.timeout).UnixNano())
}

// wait returns what the calls came to. A call that is over its time has its context cancelled; if it goes on regardless it
// is left behind some time later.
func (g *txGroup) wait(ctx, hard context.Context, cancel, abort context.CancelCauseFunc, done <-chan error) outcome {
	p := g.events.batch.p
	shortest := g.calls[0].route.timeout // the next call may have less time than this one
	for i := range g.calls {
		shortest = min(shortest, g.calls[i].route.timeout)
	}
	timer := time.NewTimer(shortest)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return classify(context.Cause(ctx), err)
		case <-ctx.Done():
			return p.overdue(ctx, hard, g.currentTask(), done, noClaims)
		case <-timer.C:
		}
		if left := g.left(); left > 0 { // the next call has begun meanwhile
			timer.Reset(min(left, shortest))
			continue
		}
		break
	}
	cancel(ErrHandlerTimeout)
	late := time.AfterFunc(txSlack, func() { abort(ErrHandlerTimeout) })
	defer late.Stop()
	return p.overdue(ctx, hard, g.currentTask(), done, noClaims)
}

// left is how much time the current call has.
func (g *txGroup) left() time.Duration { return time.Until(time.Unix(0, g.deadline.Load())) }

// currentTask is the first event of the current call.
func (g *txGroup) currentTask() *task { return g.calls[g.current.Load()].tasks[0] }

// work makes the calls until one fails, and sends what they came to: nil or a *callError.
func (g *txGroup) work(ctx context.Context, tx any, inputs [][]input, done chan<- error) {
	i, finished, p := 0, false, g.events.batch.p
	var watched observedCall
	checker, _ := tx.(dedup.TxChecker)
	if g.events.single { // the store finds it when it commits
		checker = nil
	}
	defer func() {
		if !finished { // a panic, or runtime.Goexit
			err := own(panicked(recover()))
			watched.end(err)
			done <- &callError{i, blamed(checker, err)}
		}
	}()
	for ; i < len(g.calls); i++ {
		if i > 0 {
			g.begin(i)
		}
		began := time.Now()
		err := ctx.Err() // nothing new begins in a transaction that ends
		if err == nil {
			watched = p.observeCall(ctx, g.calls[i].route, inputs[i])
			err = own(g.calls[i].route.call(watched.ctx, tx, inputs[i]))
			watched.end(err)
		}
		g.took[i] = time.Since(began)
		if named := namedIn(err, len(inputs[i])); named != nil && len(named) == 0 {
			err = nil // a BatchError that names nobody
		}
		if err := blamed(checker, err); err != nil {
			finished = true
			done <- &callError{i, err}
			return
		}
	}
	finished = true
	done <- nil
}

// blamed is the error of the call that has just ended, with what it did to its transaction: an error of the database that
// a handler swallows is its own, and not that of the next one, which meets it (rule 12). That it ended the transaction
// goes before everything else, a panic included: there are claims to be taken back.
func blamed(checker dedup.TxChecker, err error) error {
	if checker == nil {
		return err
	}
	if state := checker.CheckTx(); state != nil && (err == nil || errors.Is(state, dedup.ErrTxEnded)) {
		return state
	}
	return err
}

// notifyHandled tells observers of the calls that were made.
func (g *txGroup) notifyHandled(ctx context.Context) {
	p := g.events.batch.p
	if len(p.obs.handled) == 0 {
		return
	}
	for i, c := range g.calls {
		var err error
		if g.failed >= 0 && i >= g.failed {
			if i > g.failed {
				return
			}
			err = g.err
		}
		for _, e := range c.tasks {
			p.notifyHandled(ctx, e, g.took[i], err)
		}
	}
}

// unrun returns the requests of the calls behind the one that failed.
func (g *txGroup) unrun() (indices []int) {
	left := make(map[*task]bool)
	for _, c := range g.calls[g.failed+1:] {
		for _, e := range c.tasks {
			left[e] = true
		}
	}
	for i, e := range g.events.sorted {
		if left[e] {
			indices = append(indices, i)
		}
	}
	return indices
}

// committed settles what the transaction answered for. What is neither fresh nor a duplicate goes through the gate by
// itself.
func (g *txGroup) committed() {
	b := g.events.batch
	n := 0
	for _, e := range g.events.tasks {
		switch {
		case e.answer.Verdict == dedup.Fresh:
			e.handled, e.seen, e.settled, e.settlement = true, e.request.Origin, true, SettledHandled
			e.route.budget.Earn(1)
			n++
		case e.known():
			b.p.notifyKnown(g.events.ctx, e, e.answer)
			e.settled = true
		default:
			e.isolated = true
		}
	}
	for _, e := range g.firsts() {
		e.limit().Grow(n, e.route.maxBatch)
	}
	b.outages, b.contended = 0, 0
	b.advance()
}

// maxContended is how often in a row a group is tried again that met a lock before its first handler. The order of keys
// keeps claims from a deadlock, and every try waits for at most 20 ms.
const maxContended = 3

// firsts returns an event of each handler.
func (g *txGroup) firsts() (firsts []*task) {
	for _, e := range g.events.tasks {
		if len(firsts) == 0 || firsts[len(firsts)-1].route != e.route {
			firsts = append(firsts, e)
		}
	}
	return firsts
}

// rolledBack decides how the events go on. Nothing of them has happened, and no attempt is counted: an event that is to
// blame is run by itself, and what happens there counts.
func (g *txGroup) rolledBack(hard context.Context, began time.Time, err error) error {
	b, p := g.events.batch, g.events.batch.p
	switch {
	case hard.Err() != nil:
		return left(g.events.ctx, g.events.tasks[0], outcome{err: err})
	case errors.Is(err, dedup.ErrTxEnded) && !errors.Is(err, ErrAbandoned):
		g.endedByHandler(err)
	case errors.Is(err, dedup.ErrContended) && !g.ran && b.contended < maxContended:
		b.contended++ // a copy elsewhere, or a lock of the server's own that is soon free: nothing is known of our rows
	case errors.Is(err, dedup.ErrContended):
		g.startOver()
		g.isolate(g.events.tasks)
	case !g.ran, g.failed < 0 && errors.Is(err, dedup.ErrUnavailable): // also a commit whose outcome is unknown (P-11)
		if g.ran {
			g.shrink()
		}
		return g.outage(began, err)
	case g.failed < 0: // refused by COMMIT: nobody knows whose fault it is (rule 12)
		g.shrink()
		g.isolate(g.events.tasks)
	default:
		g.shrink()
		g.blame()
	}
	if errors.Is(err, dedup.ErrUnavailable) {
		g.events.access.down(g.events.ctx, p, began, err)
	}
	return nil
}

func (g *txGroup) shrink() {
	for _, e := range g.firsts() {
		e.limit().Shrink(len(g.events.tasks))
	}
}

// startOver makes groups begin anew with one: handlers that meet on their rows meet again, and every group that does costs
// what it had done (rule 1).
func (g *txGroup) startOver() {
	for _, e := range g.firsts() {
		e.limit().StartOver()
	}
}

func (g *txGroup) isolate(entries []*task) {
	for _, e := range entries {
		e.isolated = true
	}
}

// blame singles out who failed. A call of many events that names none is tried again with fewer, by the size that has
// shrunk.
func (g *txGroup) blame() {
	c := g.calls[g.failed]
	if named := namedIn(g.err, len(c.tasks)); named != nil {
		for i, err := range named {
			if err != nil {
				c.tasks[i].isolated = true
			}
		}
		return
	}
	if len(c.tasks) == 1 || g.outcome.meaning == abandoned {
		g.isolate(c.tasks)
	}
}

// endedByHandler: a handler ended the transaction by SQL. What it ran is durable or gone, and the store knows which; so all ask
// again, by themselves, and this handler never shares a transaction again (P-13, rule 12).
func (g *txGroup) endedByHandler(err error) {
	g.isolate(g.events.tasks)
	firsts := g.firsts()
	if g.failed >= 0 {
		firsts = g.calls[g.failed].tasks[:1]
	}
	for _, e := range firsts {
		rt := e.route
		if rt.txLimit.TurnOff() || errors.Is(err, dedup.ErrUnavailable) { // nor could claims be taken back
			g.events.batch.p.log.ErrorContext(g.events.ctx, "handler ended the transaction it was given: its events get one each from now on",
				"type", rt.typ, "handler", rt.site, "error", g.events.batch.p.errorText(err))
		}
	}
}

// outage waits for the store; then the run is planned anew.
func (g *txGroup) outage(began time.Time, err error) error {
	b := g.events.batch
	b.outages++
	g.events.access.down(g.events.ctx, b.p, began, err)
	return b.budget.wait(g.events.ctx, outageWait(b.outages), fmt.Errorf("%w: %w", dedup.ErrUnavailable, err))
}
