package idem

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

// batch is one call of Settle. It goes through its messages in order, in runs: events next to each other that share a round
// trip for their claims, and a transaction if their handlers have one. A run knows the good case only. An event that is
// anything else (busy, failed, given up before) is taken out of it and goes through the gate by itself, in its place.
type batch struct {
	p        *Processor
	ctx      context.Context
	entries  []entry
	looked   int // entries before it were looked into
	next     int // entries before it are settled
	told     int // as progress knows
	pat      *patience
	progress func(settled int)
	last     func(*entry) bool // if not nil: whether nothing behind a settled event may run
	halted   bool
	outages  int
	unlucky  int               // runs in a row that met a lock before their handlers
	deferredAt uint64            // the version of the lots at which what waits was deferred
	keys     map[uint64]*entry // the last of each Kafka key in the run that is being planned
}

// entry is one message of a batch.
type entry struct {
	delivery
	at    int // in the batch
	fate  fate
	typ   string // without handler
	class Class  // of a dead letter, with its reason
	err   error

	leader  *entry // the first copy of the same event in this run: this one is settled with it (rule 27)
	alone   bool   // not to be put in a run with others
	first   step   // what a run left to be done before the event goes through the gate
	settled bool

	answer dedup.Answer      // of the store, in the last run
	kept   *dedup.HeldClaims // who renews the claim
	keptAt int
}

// fate is what a message is for, as far as can be said without a store.
type fate uint8

const (
	forHandler fate = iota + 1
	forNobody
	forFallback
	forDeadLetter
	forNothing // there is no message
	forReading // it could not be read, or is not to be read yet: once more
)

// passive reports whether nothing is to be done but to tell of it.
func (e *entry) passive() bool { return e.settled || e.fate == forNobody }

func (p *Processor) newBatch(ctx context.Context, msgs []*Message, progress func(int)) *batch {
	b := &batch{p: p, ctx: ctx, entries: make([]entry, len(msgs)), pat: &patience{left: p.cfg.BusyWait}, progress: progress, deferredAt: ^uint64(0)}
	for i, m := range msgs {
		b.entries[i].m, b.entries[i].at = m, i
	}
	return b
}

// settle goes on until all is settled, or an error says why the next message is not.
func (b *batch) settle() error {
	defer b.tellSettled(true)
	for b.next < len(b.entries) && !b.halted {
		if b.ctx.Err() != nil {
			return stopCause(b.ctx)
		}
		if n := b.p.abandonedNow.Load(); n >= maxAbandoned {
			return fmt.Errorf("%w: %d hang, restart the process", ErrAbandoned, n)
		}
		if err := b.step(); err != nil {
			return err
		}
	}
	return nil
}

// step settles the next message, and as many after it as share a run with it; or finds out that they cannot.
func (b *batch) step() error {
	if err := b.deferWaiting(); err != nil || b.next == len(b.entries) {
		return err
	}
	e := b.look(b.next)
	if e.fate == forReading {
		return b.reread(e)
	}
	if e.fate != forHandler {
		return b.other(e)
	}
	if due := e.due(); due > 0 {
		return b.pat.wait(b.ctx, due, ErrNotDue)
	}
	r := b.plan()
	r.afford()
	taken := r.entries[:r.access.flights.take(r.entries)]
	if len(taken) == 0 {
		return r.access.flights.await(b.ctx, r.entries[0].req.Key, b.pat)
	}
	defer r.access.flights.drop(taken)
	r.cut(len(taken))
	switch {
	case len(r.entries) == 1:
		return b.single(r.entries[0])
	case r.tx != nil:
		return r.watched(r.inTx)
	default:
		return r.watched(r.claimed)
	}
}

// single takes an event through the gate by itself, whatever that takes.
func (b *batch) single(e *entry) error {
	if !e.heldUp.IsZero() { // it waited for the events before it
		e.excuse(time.Since(e.lastFailure))
	}
	if err := b.p.settle(b.ctx, &e.delivery, e.first); err != nil {
		return err
	}
	if err := b.p.settleFormer(b.ctx, &e.delivery); err != nil {
		return err
	}
	e.first = step{}
	e.settled = true
	b.advance()
	return nil
}

// advance moves over what is settled, and tells.
func (b *batch) advance() {
	for b.next < b.looked && !b.halted && b.over(&b.entries[b.next]) {
		b.halted = b.last != nil && b.last(&b.entries[b.next])
		b.next++
	}
	if b.next > b.told {
		b.tellSettled(false)
		b.told = b.next
		b.progress(b.next)
	}
}

// over reports whether e is settled, and settles what needs nothing but to be told.
func (b *batch) over(e *entry) bool {
	switch {
	case e.settled:
	case e.fate == forNobody:
		e.came = SettledSkipped
		b.p.skipped(b.ctx, e.m, e.typ, e.m.Value == nil)
	case e.leader != nil && e.leader.settled:
		if !e.leader.handled || b.p.cfg.Shadow { // given up, or not known to have been handled: the store says what that means for a copy
			e.leader, e.alone = nil, true
			return false
		}
		b.p.duplicate(b.ctx, &e.delivery, dedup.Answer{Verdict: dedup.Done, First: e.leader.seen})
	default:
		return false
	}
	e.settled = true
	return true
}

// other settles a message that no handler gets.
func (b *batch) other(e *entry) (err error) {
	switch e.fate {
	case forNothing:
		return e.err
	case forDeadLetter:
		e.came = SettledDeadLetter
		err = b.p.deadLetterEntry(b.ctx, e)
	case forFallback:
		e.came, err = b.p.runNotFound(b.ctx, e.m, b.pat)
	default:
		b.advance()
		return nil
	}
	if err != nil {
		return err
	}
	e.settled = true
	b.advance()
	return nil
}
