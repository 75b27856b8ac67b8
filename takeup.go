package idem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// takers is how many queues of a partition are taken up at a time.
const takers = 8

// takeUpEvery is how often the table is looked at although nothing is known to be due: a person may have replayed or skipped an
// event.
const takeUpEvery = 5 * time.Second

// TakesUp reports whether a handler is [KeyOrdered], so that [Processor.TakeUp] has something to do.
func (p *Processor) TakesUp() bool { return len(p.parkers()) > 0 }

// parkers are the scopes in which events may wait, and the ledgers they wait in.
func (p *Processor) parkers() map[dedup.Lot]*ledger {
	found := make(map[dedup.Lot]*ledger)
	for _, g := range p.routes.groups {
		for _, b := range g.byType {
			if b.mode == keyOrdered {
				found[dedup.Lot{Scope: b.scopeIn(p)}] = b.ledger
			}
		}
	}
	return found
}

func (b *bound) scopeIn(p *Processor) string {
	if b.scope != "" {
		return b.scope
	}
	return p.cfg.Scope
}

// TakeUp runs what waits in the ledger for the partition when it is due, in the order of Kafka keys, until ctx ends
// (rule 4). Only the owner of a partition may call it, once, beside its calls of HandleBatch, and after [Processor.Assigned]; lane.New does
// so by itself. It returns when all it began has ended, with nil, or with an error that matches [ErrAbandoned].
func (p *Processor) TakeUp(ctx context.Context, topic string, partition int32) error {
	if _, _, ok := sourceOf(topic, p.cfg.Group); ok { // what waits, waits with its source
		return nil
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for id, ledger := range p.parkers() {
		id.Topic, id.Partition = topic, partition
		t := &taker{p: p, ledger: ledger, lot: p.lots.of(id, ledger.store.(dedup.Parker)), slots: make(chan struct{}, takers), at: make(map[string]time.Time)}
		all.Go(func() {
			if err := t.run(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// taker takes up the queues of one lot.
type taker struct {
	p      *Processor
	ledger *ledger
	lot    *lot
	slots  chan struct{}
	owned  sync.WaitGroup

	mu        sync.Mutex
	at        map[string]time.Time // queues that are being taken up (zero), or are left alone until then
	abandoned error
}

func (t *taker) run(ctx context.Context) error {
	defer t.owned.Wait()
	for outages := 0; ; {
		wait := takeUpEvery
		heads, next, err := t.due(ctx)
		switch {
		case ctx.Err() != nil:
			t.owned.Wait()
			return t.abandoned
		case err != nil:
			outages++
			wait = outageWait(outages)
		default:
			outages = 0
			for _, head := range heads {
				t.begin(ctx, head)
			}
			if next >= 0 {
				wait = min(wait, max(next, 10*time.Millisecond))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.lot.wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (t *taker) due(ctx context.Context) (heads []dedup.Parked, next time.Duration, err error) {
	began := time.Now()
	err = t.p.bounded(ctx, txSlack, func(ctx context.Context) (err error) {
		heads, next, err = t.lot.parker.Due(ctx, t.lot.id, 4*takers)
		return err
	})
	if err != nil && ctx.Err() == nil {
		t.ledger.down(ctx, t.p, began, err)
	}
	return heads, next, err
}

// begin takes up a queue if nobody is at it and there is a slot.
func (t *taker) begin(ctx context.Context, head dedup.Parked) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until, busy := t.at[head.Queue]; busy && (until.IsZero() || time.Now().Before(until)) {
		return
	}
	select {
	case t.slots <- struct{}{}:
	default:
		return
	}
	t.at[head.Queue] = time.Time{}
	t.owned.Go(func() {
		err := t.queue(ctx, head)
		<-t.slots
		t.mu.Lock()
		defer t.mu.Unlock()
		if errors.Is(err, ErrAbandoned) {
			t.abandoned = err
		}
		if err != nil { // what cannot be taken up now is not asked for again at once
			t.at[head.Queue] = time.Now().Add(takeUpEvery)
			return
		}
		delete(t.at, head.Queue)
		t.lot.signal() // there is a slot, and perhaps more that is due
	})
}

// queue runs the events of a queue until one of them must wait.
func (t *taker) queue(ctx context.Context, head dedup.Parked) error {
	for {
		goesOn, err := t.event(ctx, head)
		if err != nil {
			if ctx.Err() == nil {
				t.p.log.WarnContext(ctx, "parked event is left where it is", "key", head.Key.String(), "error", cutText(err.Error(), maxErrorText))
			}
			return err
		}
		if !goesOn || ctx.Err() != nil {
			return nil
		}
		var ok bool
		err = t.p.bounded(ctx, txSlack, func(ctx context.Context) (err error) {
			head, ok, err = t.lot.parker.Head(ctx, t.lot.id, head.Queue)
			return err
		})
		if err != nil || !ok || head.Blocked || head.Wait > 0 {
			return nil // with an error too: it is found again when it is looked for
		}
	}
}

// event takes the head of a queue through the gate. It reports whether it is out of the queue.
func (t *taker) event(ctx context.Context, head dedup.Parked) (out bool, err error) {
	p := t.p
	m, err := unpark(head)
	if err != nil {
		return false, err
	}
	b := p.newBatch(ctx, []*Message{m}, func(int) {})
	b.pat = &patience{left: Forever}
	e := &b.entries[0]
	e.parked = &parkedEvent{lot: t.lot, head: head}
	if fate := b.look(0).fate; fate == forFallback || fate == forNobody { // it stays until somebody does
		return false, fmt.Errorf("nobody handles its type %q any longer", head.Key.Type)
	}
	if err := b.settle(); err != nil {
		return false, err
	}
	switch {
	case e.fate == forHandler && e.end == endMoved && e.later.delay > 0 && e.route.mode == keyOrdered:
		return false, nil // postponed
	case e.fate == forHandler && e.end == endDead && !e.route.pastDead:
		head.Blocked, head.Position = true, e.req.Position
		return false, p.postpone(ctx, &e.delivery, head)
	default:
		return t.remove(ctx, &e.delivery)
	}
}

// remove takes an event out of its queue for good.
func (t *taker) remove(ctx context.Context, d *delivery) (out bool, err error) {
	t.lot.gate.Lock()
	defer t.lot.gate.Unlock()
	head := d.parked.head
	err = t.p.insist(ctx, &patience{left: Forever}, t.ledger, "remove parked event", func(ctx context.Context) error {
		empty, err := t.lot.parker.Remove(ctx, t.lot.id, head.Queue, head.Key, head.Position)
		if err == nil && empty {
			t.lot.set(head.Queue, false)
		}
		return err
	})
	return err == nil, err
}
