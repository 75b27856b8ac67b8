package engine

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// This file runs handlers without the store, if the user has chosen that. Such a run has no claim
// and no record, so the effect happens at each delivery.

// recordKey returns key with the place of the record as the ID. Without an ID, all records of a
// type would share one idempotency key at an outside API. Their emitted events would share one
// parent. The key is never claimed, because copies of an event differ in their places. A message
// without a known place has its content as the ID.
func recordKey(key dedup.Key, m *idemtype.Message) dedup.Key {
	if !m.Placed() {
		parts := []string{"content", m.Topic, string(m.Key), string(m.Value)}
		for _, h := range m.Headers {
			parts = append(parts, h.Key, string(h.Value))
		}
		key.ID = dedup.Hash(parts...)
		return key
	}
	key.ID = dedup.Hash("record", m.Topic, strconv.Itoa(int(m.Partition)),
		strconv.FormatInt(m.Offset, 10))
	return key
}

// readWithoutID chooses the path of a record without an ID. The value of a record that runs is
// decoded.
func (t *task) readWithoutID(ctx context.Context) {
	if t.noID == idemtype.SkipNoID {
		t.destination = destNoID
		return
	}
	if err := t.decode(ctx); err != nil {
		t.unread(idemtype.ClassUndecodable, err)
		return
	}
	t.destination = destUnprotected
}

// skipNoID settles a record without an ID that its handler skips.
func (b *batch) skipNoID(t *task) {
	t.kind = observe.SettledSkipped
	b.p.notifyNoID(b.ctx, t)
	for _, o := range b.p.obs.Skipped {
		o.ObserveSkipped(b.ctx, observe.SkippedEvent{
			Group: b.p.group, Message: t.message, Type: t.route.Type, NoID: true,
		})
	}
}

// settleUnprotected runs an event without an ID until it is settled.
func (p *Processor) settleUnprotected(ctx context.Context, t *task) error {
	p.notifyUnprotected(ctx, t, observe.NoEventID)
	for !t.settled {
		if err := p.attemptUnprotected(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// attemptUnprotected runs an event without the store, once. If the event is not settled then, the
// wait before its next attempt is over.
func (p *Processor) attemptUnprotected(ctx context.Context, t *task) error {
	s, err := p.tryUnprotected(ctx, t)
	switch {
	case err != nil:
		return err
	case s.settled:
		t.settled = true
		if t.kind == observe.SettledHandled {
			t.kind = observe.SettledUnprotected
		}
		return nil
	case s.outage != nil:
		t.unprotectedWaits++
		return t.waitOut(ctx, t.unprotectedWaits, s.outage)
	case s.notBefore.IsZero():
		return nil
	}
	return t.pauseUntil(ctx, s.notBefore)
}

// pauseUntil waits for the time of the event's next attempt, and pays for that attempt.
func (t *task) pauseUntil(ctx context.Context, notBefore time.Time) error {
	if err := sleepUntil(ctx, notBefore); err != nil {
		return err
	}
	return t.afford(ctx)
}

// tryUnprotected is one attempt within the limits of the handler. An event with an ID does not run
// if the store came back, or RunFor ended, during the wait for those limits.
func (p *Processor) tryUnprotected(
	ctx context.Context, t *task,
) (s attemptResult, err error) {
	err = p.allowed(ctx, t, func() (err error) {
		if t.destination == destHandler && !p.beginsWithoutStore(ctx, t) {
			t.permit.End(false)
			return nil
		}
		hard, release := p.stopContext(ctx, t.tx == nil)
		defer release()
		s, err = p.runBare(ctx, hard, t)
		return err
	})
	return s, err
}

// runBare is one attempt without a claim. The retry policy applies to a failure.
func (p *Processor) runBare(ctx, hard context.Context, t *task) (attemptResult, error) {
	if ctx.Err() != nil {
		return attemptResult{}, stopCause(ctx)
	}
	t.handled, t.claim, t.kind = false, dedup.Claim{}, observe.SettledHandled // after a success
	t.attempt = t.failures + 1
	var o outcome
	if t.tx == nil {
		o = p.timedRun(hard, t, nil)
		t.endTurn(true)
	} else {
		var blocked bool
		var err error
		if o, blocked, err = p.bareTx(hard, t); err != nil {
			return attemptResult{}, err
		}
		t.endTurn(true)
		if blocked {
			return attemptResult{}, p.waitBusy(ctx, t, dedup.Answer{Verdict: dedup.Busy})
		}
		t.busy = busy{}
	}
	p.judge(hard, t, o, false)
	return p.finish(ctx, hard, t, o, unrecorded{})
}

// bareTx runs an event in a transaction without a claim. blocked is true if another worker holds a
// lock that the transaction needs (rule 10). After an error no handler ran.
func (p *Processor) bareTx(hard context.Context, t *task) (o outcome, blocked bool, err error) {
	free, err := t.access.slot(hard, t.budget)
	if err != nil {
		return outcome{}, false, err
	}
	defer free()
	ran, began := false, time.Now()
	err = inTxTime(
		hard,
		func(ctx context.Context, abort context.CancelCauseFunc, run func(func()) error) error {
			return t.tx.RunTx(ctx, t.route.Timeout, func(tx any) error {
				if err := run(func() {
					ran = true
					late := time.AfterFunc(t.route.Timeout+txSlack, func() {
						abort(idemtype.ErrHandlerTimeout)
					})
					defer late.Stop()
					o = p.timedRun(ctx, t, tx)
				}); err != nil {
					return err
				}
				return o.err
			})
		},
	)
	t.access.called(hard, observe.VerbTransaction, 0, nil, began, err)
	switch {
	case err == nil:
		return o, false, nil
	case ran && o.meaning == succeeded && errors.Is(err, dedup.ErrContended):
		return outcome{}, true, nil
	}
	return txOutcome(hard, o, ran, err), false, nil
}
