package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// This file decides about the events of a transaction that has ended.

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
	if events := tg.inDoubt(err); len(events) > 0 {
		b.p.notifyInDoubt(tg.group.ctx, events, err)
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

// inDoubt returns the fresh events that did not run, of an error that matches ErrClaimsInDoubt.
func (tg *txGroup) inDoubt(err error) (events []*task) {
	if !errors.Is(err, dedup.ErrClaimsInDoubt) {
		return nil
	}
	var unrun []int
	if ended, ok := errors.AsType[*dedup.TxEndedError](err); ok {
		unrun = ended.Unrun
	} else if failed, ok := errors.AsType[*dedup.GroupError](err); ok {
		unrun = failed.Unrun
	}
	for _, i := range unrun {
		if i >= 0 && i < len(tg.group.sorted) && tg.group.sorted[i].answer.Verdict == dedup.Fresh {
			events = append(events, tg.group.sorted[i])
		}
	}
	return events
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
		// A TxChecker has found the transaction open after each earlier call.
		if tg.checked && (tg.outcome.meaning == abandoned || errors.Is(tg.err, dedup.ErrTxEnded)) {
			began = began[tg.failed:]
		}
		firsts = nil
		for _, c := range began {
			known := func(t *task) bool { return t.route == c.tasks[0].route }
			if !slices.ContainsFunc(firsts, known) {
				firsts = append(firsts, c.tasks[0])
			}
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
