package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// This file runs transactional handlers. Many events share a transaction. Only the events of a
// rolled-back transaction are taken apart, so no effect can happen twice (rule 2).

// txGroup is one such transaction.
type txGroup struct {
	group   *eventGroup
	reqs    []dedup.Request
	answers []dedup.Answer
	calls   []handlerCall // calls for the fresh events
	took    []time.Duration

	began    time.Time
	starts   uint32  // of the only event, with this one; 0: not counted
	lookOnly bool    // only look: an event of a new partition may kill the process
	unread   outcome // outcome of a fresh event that cannot be decoded
	ran      bool
	current  atomic.Int32 // index into calls
	deadline atomic.Int64 // of the current call; Unix nanoseconds
	failed   int          // index of the call that failed, or -1
	err      error        // result of that call, unchanged
	outcome  outcome      // outcome of that call
}

// runInTx claims the events of the group, runs those that are fresh, and commits, in one
// transaction.
func (g *eventGroup) runInTx() error {
	p, ctx := g.batch.p, g.ctx
	if g.single {
		if done, err := g.refuseBeforeTx(); done {
			return err
		}
	}
	if err := g.acquirePermit(); err != nil {
		return err
	}
	tg := &txGroup{group: g, failed: -1, lookOnly: !g.single && g.guarded()}
	defer func() { g.permit.End(tg.ran) }()
	tg.reqs, tg.answers = g.requests()
	hard, release := p.stopContext(ctx, false)
	defer release()
	// Wait before a start is counted: an end of the process meanwhile is no crash of the event.
	free, err := g.access.slot(hard, g.batch.budget)
	if err != nil {
		g.tasks[0].permit.End(false)
		return err
	}
	free = sync.OnceFunc(free)
	defer free() // also if an observer panics
	if g.single {
		if done, err := tg.countStart(ctx, free); done {
			return err
		}
	}
	tg.began = time.Now()
	err = tg.claim(hard)
	free() // the following steps need no connection
	if len(tg.calls) > 0 {
		g.endTurns()
	}
	looked := errors.Is(err, errLookOnly)
	if looked {
		err = nil
	} else if err == nil { // again: a store may answer Busy at the commit
		tg.keepAnswers()
	}
	tg.observe(ctx, looked, err)
	switch {
	case g.single:
		return tg.settleSingle(ctx, hard, err)
	case err != nil:
		g.failure = err
		return tg.rolledBack(hard, tg.began, err)
	}
	g.access.up(ctx, tg.began)
	if looked {
		tg.settleKnown()
	} else {
		tg.committed()
	}
	return nil
}

// observe reports the transaction and its answers to observers.
func (tg *txGroup) observe(ctx context.Context, looked bool, err error) {
	p := tg.group.batch.p
	if !looked {
		tg.group.access.called(
			ctx, observe.VerbTransaction, len(tg.reqs), tg.answers, tg.began, err,
		)
	}
	for i, t := range tg.group.sorted {
		if !looked || t.isDuplicate() { // the other events were only looked at
			p.observeClaim(ctx, t, tg.answers[i].Verdict, tg.began, err)
		}
	}
}

// errLookOnly ends a transaction in which no handler runs.
var errLookOnly = errors.New("only looked")

// guarded reports whether the store counts starts and an event belongs to a newly assigned
// partition. Such events run one by one (rule 18). Known events are still settled together.
func (g *eventGroup) guarded() bool {
	if g.access.counter == nil {
		return false
	}
	topic, partition, last := "", int32(-1), false
	for _, t := range g.tasks {
		if t.message.Partition != partition || t.message.Topic != topic {
			topic, partition = t.message.Topic, t.message.Partition
			last = g.batch.p.guarded(t.message)
		}
		if last {
			return true
		}
	}
	return false
}

// settleKnown settles the known events. The first of the others run by themselves. After an event
// that cannot be decoded, the others still share a group.
func (tg *txGroup) settleKnown() {
	b := tg.group.batch
	watched := guardedEvents
	for _, t := range tg.group.tasks {
		if t.isDuplicate() {
			b.p.notifyKnown(tg.group.ctx, t, t.answer)
			t.settled = true
		} else if watched--; watched >= 0 && !tg.unread.refused {
			t.isolated = true
		}
	}
	b.advance()
}

// claim calls the store, which calls the handlers, perhaps more than once. Each handler has its own
// timeout.
func (tg *txGroup) claim(hard context.Context) error {
	limit := time.Duration(0)
	for _, t := range tg.group.tasks {
		limit = max(limit, t.route.Timeout)
	}
	return inTxTime(
		hard,
		func(ctx context.Context, abort context.CancelCauseFunc, run func(func()) error) error {
			return tg.group.tx.ClaimTx(
				ctx,
				limit,
				tg.reqs,
				tg.answers,
				func(tx any) ([]dedup.Completion, error) {
					var ended error
					err := run(func() { ended = tg.runFresh(ctx, abort, tx) })
					return nil, firstOf(err, ended)
				},
			)
		},
	)
}

// runFresh runs the fresh events in a transaction of the store, or ends the transaction if no
// handler may run.
func (tg *txGroup) runFresh(ctx context.Context, abort context.CancelCauseFunc, tx any) error {
	fresh := tg.fresh()
	if tg.lookOnly || !tg.group.single && tg.behindException() || !tg.decode(fresh) {
		return errLookOnly // known events stay known
	}
	tg.ran = true
	return tg.run(ctx, abort, tx, fresh)
}

// decode decodes the fresh events. The result is false if an event cannot be decoded. Such an event
// is isolated. The only event of a group is settled after the rollback.
func (tg *txGroup) decode(fresh []*task) bool {
	tg.unread = outcome{}
	for _, t := range fresh {
		if o := t.decodeFresh(); o.refused {
			t.isolated, tg.unread = true, o
		}
	}
	return !tg.unread.refused
}

// run makes the calls in a goroutine of its own, as [Processor.run] does for one call.
func (tg *txGroup) run(
	hard context.Context, abort context.CancelCauseFunc, tx any, fresh []*task,
) error {
	// The store may repeat the run: forget the results of the run before.
	tg.failed, tg.err, tg.outcome = -1, nil, outcome{}
	tg.calls = tg.group.calls(fresh)
	if len(tg.calls) == 0 {
		return nil
	}
	inputs := make([][]Input, len(tg.calls))
	all := make([]Input, 0, len(tg.group.tasks))
	for i, c := range tg.calls {
		n := len(all)
		for _, t := range c.tasks {
			all = append(all, t.input())
		}
		inputs[i] = all[n:len(all):len(all)]
	}
	ctx, cancel := context.WithCancelCause(hard)
	defer cancel(context.Canceled)
	tg.took = make([]time.Duration, len(tg.calls))
	tg.begin(0)
	done := make(chan error, 1)
	go tg.work(ctx, tx, inputs, done)
	tg.outcome = tg.wait(ctx, hard, cancel, abort, done)
	var failed *callError
	switch {
	case errors.As(tg.outcome.err, &failed):
		tg.failed, tg.err = failed.call, failed.err
		if tg.group.single { // a batch handler names its only event in a BatchError as well
			all := tg.outcome
			all.err = tg.err
			o := newOutcomes(ctx, all, tg.group.tasks)
			tg.outcome = o.of(tg.group.tasks[0])
			tg.err = tg.outcome.err
		}
	case tg.outcome.meaning != succeeded: // the handler still runs; only its current call is known
		tg.outcome.meaning = abandoned
		tg.failed = int(tg.current.Load())
		err := tg.outcome.err
		if !errors.Is(err, idemtype.ErrAbandoned) {
			err = fmt.Errorf("%w: %w", idemtype.ErrAbandoned, err)
		}
		if tg.group.single {
			return err
		}
		// The handler may have ended the transaction before it hung. Then claims must be taken
		// back.
		return &dedup.GroupError{Unrun: tg.unrun(tx), Err: err}
	}
	tg.noteRuns(ctx)
	tg.notifyHandled(ctx)
	switch {
	case tg.err == nil || tg.group.single:
		return tg.err
	case errors.Is(tg.err, dedup.ErrTxEnded):
		return &dedup.TxEndedError{Unrun: tg.unrun(tx)}
	}
	return &dedup.GroupError{Unrun: tg.unrun(tx), Err: tg.err}
}

// keepAnswers copies the answers to the tasks, because the store takes them back with a transaction
// that is rolled back.
func (tg *txGroup) keepAnswers() {
	for i, t := range tg.group.sorted {
		t.answer = tg.answers[i]
		t.decision = verdict(t.answer, &t.route.Policy, &t.attempts, t.facts(t.answer))
	}
}

// fresh returns the events that are to run, in the order of delivery.
func (tg *txGroup) fresh() []*task {
	tg.keepAnswers()
	fresh := make([]*task, 0, len(tg.group.tasks))
	for _, t := range tg.group.tasks {
		if t.answer.Verdict == dedup.Fresh {
			t.attempt, t.uncertain = t.failures+1, false
			fresh = append(fresh, t)
		}
	}
	return fresh
}

func (tg *txGroup) begin(i int) {
	tg.current.Store(int32(i))
	tg.deadline.Store(time.Now().Add(tg.calls[i].route.Timeout).UnixNano())
}

// wait returns the outcome of the calls. A call beyond its time-out has its context cancelled. If
// the handler ignores that, the transaction is aborted after txSlack. The abort ends hard, and
// overdue abandons the handler.
//
// A handler that returns nil after its time-out ends the group too. The next call finds the
// cancelled context, and the events of that call are isolated. No attempt counts.
func (tg *txGroup) wait(
	ctx, hard context.Context, cancel, abort context.CancelCauseFunc, done <-chan error,
) outcome {
	p := tg.group.batch.p
	shortest := tg.calls[0].route.Timeout // the next call may have less time than this one
	for i := range tg.calls {
		shortest = min(shortest, tg.calls[i].route.Timeout)
	}
	timer := time.NewTimer(shortest)
	defer timer.Stop()
	for {
		select {
		case err := <-done:
			return classify(context.Cause(ctx), err)
		case <-ctx.Done():
			return p.overdue(ctx, hard, tg.currentTask(), done, noClaims)
		case <-timer.C:
		}
		if left := tg.timeLeft(); left > 0 { // the next call has begun meanwhile
			timer.Reset(min(left, shortest))
			continue
		}
		break
	}
	cancel(idemtype.ErrHandlerTimeout)
	late := time.AfterFunc(txSlack, func() { abort(idemtype.ErrHandlerTimeout) })
	defer late.Stop()
	return p.overdue(ctx, hard, tg.currentTask(), done, noClaims)
}

// timeLeft returns the time that the current call still has.
func (tg *txGroup) timeLeft() time.Duration { return time.Until(time.Unix(0, tg.deadline.Load())) }

// currentTask returns the first event of the current call.
func (tg *txGroup) currentTask() *task { return tg.calls[tg.current.Load()].tasks[0] }

// work makes the calls until one fails. The result that is sent to done is nil or a *callError.
func (tg *txGroup) work(ctx context.Context, tx any, inputs [][]Input, done chan<- error) {
	i, finished, p := 0, false, tg.group.batch.p
	var watched observedCall
	checker, _ := tx.(dedup.TxChecker)
	if tg.group.single { // the store finds an ended transaction at the commit
		checker = nil
	}
	defer func() {
		if !finished { // a panic, or runtime.Goexit
			err := userErr(panicked(recover()))
			watched.end(err)
			done <- &callError{i, txFault(checker, err)}
		}
	}()
	for ; i < len(tg.calls); i++ {
		if i > 0 {
			tg.begin(i)
		}
		began := time.Now()
		err := ctx.Err() // no handler starts in a cancelled transaction
		if err == nil {
			watched = p.observeCall(ctx, tg.calls[i].route, inputs[i])
			err = userErr(tg.calls[i].route.Call(watched.ctx, tx, inputs[i]))
			watched.end(err)
		}
		tg.took[i] = time.Since(began)
		if named := namedIn(err, len(inputs[i])); named != nil && len(named) == 0 {
			err = nil // an empty BatchError is a success
		}
		if err := txFault(checker, err); err != nil {
			finished = true
			done <- &callError{i, err}
			return
		}
	}
	finished = true
	done <- nil
}

// txFault returns the error of the last call, together with the state of the transaction. A
// database error that the handler ignored belongs to this call, not to the next one (rule 12). The
// end of the transaction has precedence, also over a panic, because claims must be taken back.
func txFault(checker dedup.TxChecker, err error) error {
	if checker == nil {
		return err
	}
	if state := checker.CheckTx(); state != nil &&
		(err == nil || errors.Is(state, dedup.ErrTxEnded)) {
		return state
	}
	return err
}

// noteRuns notes the outcomes of the calls for the breakers of their handlers.
func (tg *txGroup) noteRuns(ctx context.Context) {
	for i := range tg.calls {
		c := &tg.calls[i]
		var o outcomes
		switch {
		case c.route.breaker == nil:
			continue
		case tg.failed >= 0 && i > tg.failed:
			return
		case i == tg.failed:
			all := tg.outcome
			all.err = tg.err
			o = newOutcomes(ctx, all, c.tasks)
		}
		tg.group.batch.p.noteRun(ctx, c.route, &o, c.tasks)
	}
}

// notifyHandled reports the events of all calls to observers.
func (tg *txGroup) notifyHandled(ctx context.Context) {
	p := tg.group.batch.p
	if len(p.obs.Handled) == 0 {
		return
	}
	for i, c := range tg.calls {
		var err error
		if tg.failed >= 0 && i >= tg.failed {
			if i > tg.failed {
				return
			}
			err = tg.err
		}
		for _, t := range c.tasks {
			p.notifyHandled(ctx, t, tg.took[i], err)
		}
	}
}

// unrun returns the requests whose claims must not stay if the transaction was ended by SQL. These
// are the calls behind the one that failed: that call ended the transaction. If tx does not tell
// its state, an earlier call may have ended it. Then the call that failed has no transaction either.
func (tg *txGroup) unrun(tx any) (indices []int) {
	from := tg.failed
	if _, checked := tx.(dedup.TxChecker); checked || from == 0 {
		from++
	}
	left := make(map[*task]bool)
	for _, c := range tg.calls[from:] {
		for _, t := range c.tasks {
			left[t] = true
		}
	}
	for i, t := range tg.group.sorted {
		if left[t] {
			indices = append(indices, i)
		}
	}
	return indices
}

// committed settles the fresh events and the duplicates of the transaction. All others are settled
// by themselves.
func (tg *txGroup) committed() {
	b := tg.group.batch
	n := 0
	for _, t := range tg.group.tasks {
		switch {
		case t.answer.Verdict == dedup.Fresh:
			t.settlement = t.handledHere()
			t.route.budget.Earn(1)
			n++
		case t.isDuplicate():
			b.p.notifyKnown(tg.group.ctx, t, t.answer)
			t.settled = true
		default:
			t.isolated = true
		}
	}
	for _, t := range tg.firsts() {
		t.limit().Grow(n, t.route.MaxBatch)
	}
	b.outages, b.contended = 0, 0
	b.advance()
}

// maxContended limits the consecutive groups that are tried again after a lock before the first
// handler. Claims in the order of keys cannot deadlock, and every try waits for at most 20 ms.
const maxContended = 3

// firsts returns an event of each handler.
func (tg *txGroup) firsts() (firsts []*task) {
	for _, t := range tg.group.tasks {
		if len(firsts) == 0 || firsts[len(firsts)-1].route != t.route {
			firsts = append(firsts, t)
		}
	}
	return firsts
}

// rolledBack decides about the events of a rolled-back transaction. No effect has happened, and no
// attempt counts. An event that may be the cause runs by itself, and that run counts.
func (tg *txGroup) rolledBack(hard context.Context, began time.Time, err error) error {
	b := tg.group.batch
	if tg.failed >= 0 && errors.Is(err, idemtype.ErrAbandoned) {
		b.p.notifyGivenUp(tg.group.ctx, tg.calls[tg.failed].tasks[0], err)
	}
	switch {
	case hard.Err() != nil:
		return interrupted(tg.group.ctx, tg.group.tasks[0], outcome{err: err})
	case errors.Is(err, dedup.ErrTxEnded):
		tg.endedByHandler(err)
	case errors.Is(err, dedup.ErrContended) && !tg.ran && b.contended < maxContended:
		b.contended++ // a copy elsewhere, or a short lock of the server
	case errors.Is(err, dedup.ErrContended):
		tg.startOver()
		tg.isolate(tg.group.tasks)
	case !tg.ran,
		// The commit may have an unknown outcome (P-11).
		tg.failed < 0 && errors.Is(err, dedup.ErrUnavailable):
		if tg.ran {
			tg.shrink()
		}
		return tg.waitForStore(began, err)
	case tg.failed < 0: // refused by COMMIT: no event is known as the cause (rule 12)
		tg.shrink()
		tg.isolate(tg.group.tasks)
	default:
		tg.shrink()
		tg.blame()
	}
	if errors.Is(err, dedup.ErrUnavailable) {
		tg.group.access.down(tg.group.ctx, began, err)
	}
	return nil
}

func (tg *txGroup) shrink() {
	for _, t := range tg.firsts() {
		t.limit().Shrink(len(tg.group.tasks))
	}
}

// startOver sets the group size of the handlers to one. Handlers that meet on their rows would meet
// again, and each rollback repeats the work of a group (rule 1).
func (tg *txGroup) startOver() {
	for _, t := range tg.firsts() {
		t.limit().StartOver()
	}
}

func (tg *txGroup) isolate(tasks []*task) {
	for _, t := range tasks {
		t.isolated = true
	}
}

// blame isolates the events that failed. If the error of a call of many events names no event, the
// group is tried again with the smaller size. Each event that may have failed waits as long as the
// error asks for.
func (tg *txGroup) blame() {
	c := tg.calls[tg.failed]
	if named := namedIn(tg.err, len(c.tasks)); named != nil {
		for i, err := range named {
			if err != nil {
				c.tasks[i].isolated = true
				c.tasks[i].restFor(classify(nil, err).after)
			}
		}
		return
	}
	for _, t := range c.tasks {
		t.restFor(tg.outcome.after)
	}
	if len(c.tasks) == 1 || tg.outcome.meaning == abandoned {
		tg.isolate(c.tasks)
	}
}

// endedByHandler handles a transaction that a handler has ended by SQL. The effects are committed
// or gone, and only the store knows. So each event is claimed again by itself. This handler never
// shares a transaction again (P-13, rule 12).
func (tg *txGroup) endedByHandler(err error) {
	tg.isolate(tg.group.tasks)
	firsts := tg.firsts()
	if tg.failed >= 0 { // the calls behind did not run
		began := tg.calls[:tg.failed+1]
		if errors.Is(tg.err, dedup.ErrTxEnded) { // known only with a TxChecker
			began = began[tg.failed:]
		}
		firsts = nil
		for _, c := range began {
			firsts = append(firsts, c.tasks[0])
		}
	}
	for _, t := range firsts {
		rt := t.route
		// ErrUnavailable: the claims could not be taken back either.
		if rt.txLimit.TurnOff() || errors.Is(err, dedup.ErrUnavailable) {
			tg.group.batch.p.log.ErrorContext(
				tg.group.ctx,
				"handler ended the transaction it was given: its events get one each from now on",
				"type", rt.Type, "handler", rt.Site, "error", tg.group.batch.p.errorText(err),
			)
		}
	}
}

// waitForStore waits for the store. Then the group is formed anew.
func (tg *txGroup) waitForStore(began time.Time, err error) error {
	b := tg.group.batch
	b.outages++
	tg.group.access.down(tg.group.ctx, began, err)
	return b.budget.wait(
		tg.group.ctx, outageWait(b.outages), fmt.Errorf("%w: %w", dedup.ErrUnavailable, err),
	)
}
