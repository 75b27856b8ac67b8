package idem

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file tells observers of the engine's work in units larger than an event. Nothing is made for them, and no clock is
// looked at, where there are none.

// observed does the work of a run and tells of its begin and end.
func (r *eventGroup) observed(work func() error) (err error) {
	p := r.batch.p
	if len(p.obs.claimGroup) == 0 {
		return work()
	}
	group := &ClaimGroup{Group: p.cfg.Group, Transactional: r.tx != nil, tasks: r.tasks}
	r.undone = nil
	ctx := r.ctx
	end := p.beginClaimGroup(&r.ctx, group)
	defer func() {
		r.ctx = ctx
		var outage error
		if r.single {
			outage = r.tasks[0].pending.outage
		}
		end(firstOf(err, outage, r.undone))
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

// beginClaimGroup tells of the begin of a run and replaces its context. The end is told to each observer with the context that it made.
func (p *Processor) beginClaimGroup(ctx *context.Context, r *ClaimGroup) (end func(err error)) {
	contexts := make([]context.Context, len(p.obs.claimGroup))
	for i, o := range p.obs.claimGroup {
		*ctx = o.BeginClaimGroup(*ctx, r) //nolint:fatcontext // bounded by the observers, each under the one before
		contexts[i] = *ctx
	}
	return func(err error) {
		r.Err = err
		for i := len(p.obs.claimGroup) - 1; i >= 0; i-- {
			p.obs.claimGroup[i].EndClaimGroup(contexts[i], r)
		}
	}
}

// observedCall is a call of a handler that is told of; without observers it only has a context.
type observedCall struct {
	ctx      context.Context
	p        *Processor
	call     *Call // nil: nothing to be told, or told already
	contexts []context.Context
}

// observeCall tells of the begin of a call.
func (p *Processor) observeCall(ctx context.Context, b *bound, in []input) observedCall {
	w := observedCall{ctx: ctx, p: p}
	if len(p.obs.call) == 0 || len(in) == 0 {
		return w
	}
	w.call = &Call{Group: p.cfg.Group, Type: b.typ, Batch: b.batch, Transactional: b.tx != nil, Began: time.Now(), in: in}
	w.contexts = make([]context.Context, len(p.obs.call))
	for i, o := range p.obs.call {
		p.spared("BeginCall", func() { w.ctx = o.BeginCall(w.ctx, w.call) }) //nolint:fatcontext // as above
		w.contexts[i] = w.ctx                                                //nolint:fatcontext // as above
	}
	return w
}

// end tells of the end of a call, once.
func (w *observedCall) end(err error) {
	if w.call == nil {
		return
	}
	c := w.call
	w.call = nil
	c.Took, c.Err = time.Since(c.Began), err
	for i := len(w.contexts) - 1; i >= 0; i-- {
		w.p.spared("EndCall", func() { w.p.obs.call[i].EndCall(w.contexts[i], c) })
	}
}

// spared keeps an observer's panic from being taken for that of the handler on whose goroutine it is told.
func (p *Processor) spared(what string, tell func()) {
	defer func() {
		if v := recover(); v != nil {
			p.log.Error("an observer panicked", "in", what, "panic", v)
		}
	}()
	tell()
}

// storeCall tells of a call of a store. answers are nil where there are none.
func (p *Processor) storeCall(ctx context.Context, l *storeAccess, verb StoreVerb, keys int, answers []dedup.Answer, began time.Time, err error) {
	if len(p.obs.storeCall) == 0 {
		return
	}
	e := StoreCallEvent{Group: p.cfg.Group, Store: l.kind(), Verb: verb, Keys: keys, Took: time.Since(began)}
	if !errors.Is(err, dedup.ErrClaimLost) {
		e.Err = err
	}
	if err == nil {
		e.note(answers)
	}
	for _, o := range p.obs.storeCall {
		o.ObserveStoreCall(ctx, e)
	}
}

// kind is the type of the store.
func (l *storeAccess) kind() string { return strings.TrimPrefix(l.name, "store ") }

// notifyLapsed tells of a claim whose lease was over before its handler began.
func (p *Processor) notifyLapsed(ctx context.Context, d *task) {
	p.log.WarnContext(ctx, "lease was over before the handler began: claiming again", append(p.deliveryAttrs(d), "lease", p.cfg.Lease)...)
}

// notifyLost tells of a claim that was lost before the end of its event was recorded.
func (p *Processor) notifyLost(ctx context.Context, d *task) {
	p.log.WarnContext(ctx, "claim was lost before the end of its event was recorded", p.deliveryAttrs(d)...)
	for _, o := range p.obs.lost {
		o.ObserveLost(ctx, LostEvent{Group: p.cfg.Group, Message: d.message, Key: d.request.Key})
	}
}

// notifySettled tells what was settled since it was last asked, in the order of the batch. At the end of a batch that includes what lies behind an event that is not: it
// will come again, and count again, as a duplicate.
func (b *batch) notifySettled(rest bool) {
	if len(b.p.obs.settled) == 0 {
		return
	}
	var e SettledEvent
	total := 0
	tell := func() {
		if total > 0 {
			for _, o := range b.p.obs.settled {
				o.ObserveSettled(b.ctx, e)
			}
		}
		total = 0
	}
	to := b.next
	if rest {
		to = len(b.tasks)
	}
	for i := b.notified; i < to; i++ {
		d := &b.tasks[i]
		if !d.settled {
			continue
		}
		topic, partition := d.place()
		if total > 0 && (e.Partition != partition || e.Topic != topic || e.Deferred != (d.deferred != nil)) {
			tell()
		}
		if total == 0 {
			e = SettledEvent{Group: b.p.cfg.Group, Topic: topic, Partition: partition, Deferred: d.deferred != nil}
		}
		e.Counts[d.settlement]++
		total++
	}
	tell()
}

// place is where the delivery was fetched from.
func (d *task) place() (topic string, partition int32) {
	if c := d.message.copied; c != nil && c.topic != "" {
		return c.topic, c.partition
	}
	return d.message.Topic, d.message.Partition
}
