package engine

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// This file tells observers of the engine's work in units larger than an event. Nothing is made for them, and no clock is
// looked at, where there are none.

// observed does the work of a run and tells of its begin and end.
func (g *eventGroup) observed(work func() error) (err error) {
	p := g.batch.p
	if len(p.obs.claimGroup) == 0 {
		return work()
	}
	event := &observe.ClaimGroup{Deliveries: taskList(g.tasks), Group: p.cfg.Group, Transactional: g.tx != nil}
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

// beginClaimGroup tells of the begin of a run and replaces its context. The end is told to each observer with the context that it made.
func (p *Processor) beginClaimGroup(ctx *context.Context, group *observe.ClaimGroup) (end func(err error)) {
	contexts := make([]context.Context, len(p.obs.claimGroup))
	for i, o := range p.obs.claimGroup {
		*ctx = o.BeginClaimGroup(*ctx, group) //nolint:fatcontext // bounded by the observers, each under the one before
		contexts[i] = *ctx
	}
	return func(err error) {
		group.Err = err
		for i := len(p.obs.claimGroup) - 1; i >= 0; i-- {
			p.obs.claimGroup[i].EndClaimGroup(contexts[i], group)
		}
	}
}

// observedCall is a call of a handler that is told of; without observers it only has a context.
type observedCall struct {
	ctx      context.Context
	p        *Processor
	call     *observe.Call // nil: nothing to be told, or told already
	contexts []context.Context
}

// observeCall tells of the begin of a call.
func (p *Processor) observeCall(ctx context.Context, b *bound, in []Input) observedCall {
	w := observedCall{ctx: ctx, p: p}
	if len(p.obs.call) == 0 || len(in) == 0 {
		return w
	}
	w.call = &observe.Call{Events: inputs(in), Group: p.cfg.Group, Type: b.Type, Batch: b.Batch, Transactional: b.tx != nil, Began: time.Now()}
	w.contexts = make([]context.Context, len(p.obs.call))
	for i, o := range p.obs.call {
		p.protect("BeginCall", func() { w.ctx = o.BeginCall(w.ctx, w.call) }) //nolint:fatcontext // as above
		w.contexts[i] = w.ctx                                                 //nolint:fatcontext // as above
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
		w.p.protect("EndCall", func() { w.p.obs.call[i].EndCall(w.contexts[i], c) })
	}
}

// taskList implements [observe.Deliveries].
type taskList []*task

func (l taskList) Len() int                        { return len(l) }
func (l taskList) Message(i int) *idemtype.Message { return l[i].message }
func (l taskList) Key(i int) dedup.Key             { return l[i].request.Key }

// inputs implements [observe.Events].
type inputs []Input

func (l inputs) Len() int                        { return len(l) }
func (l inputs) Message(i int) *idemtype.Message { return l[i].Message }
func (l inputs) Key(i int) dedup.Key             { return l[i].Key }
func (l inputs) Attempt(i int) int               { return l[i].Attempt }

// protect keeps an observer's panic from being taken for that of the handler on whose goroutine it is told.
func (p *Processor) protect(what string, callback func()) {
	defer func() {
		if v := recover(); v != nil {
			p.log.Error("an observer panicked", "in", what, "panic", v)
		}
	}()
	callback()
}

// storeCall tells of a call of a store. answers are nil where there are none.
func (p *Processor) storeCall(ctx context.Context, access *storeAccess, verb observe.StoreVerb, keys int, answers []dedup.Answer, began time.Time, err error) {
	if len(p.obs.storeCall) == 0 {
		return
	}
	e := observe.StoreCallEvent{Group: p.cfg.Group, Store: access.kind(), Verb: verb, Keys: keys, Took: time.Since(began)}
	if !errors.Is(err, dedup.ErrClaimLost) {
		e.Err = err
	}
	if err == nil {
		e.Count(answers)
	}
	for _, o := range p.obs.storeCall {
		o.ObserveStoreCall(ctx, e)
	}
}

// kind is the type of the store.
func (s *storeAccess) kind() string { return strings.TrimPrefix(s.name, "store ") }

// notifyLapsed tells of a claim whose lease was over before its handler began.
func (p *Processor) notifyLapsed(ctx context.Context, t *task) {
	p.log.WarnContext(ctx, "lease was over before the handler began: claiming again", append(p.taskAttrs(t), "lease", p.cfg.Lease)...)
}

// notifyLost tells of a claim that was lost before the end of its event was recorded.
func (p *Processor) notifyLost(ctx context.Context, t *task) {
	p.log.WarnContext(ctx, "claim was lost before the end of its event was recorded", p.taskAttrs(t)...)
	for _, o := range p.obs.lost {
		o.ObserveLost(ctx, observe.LostEvent{Group: p.cfg.Group, Message: t.message, Key: t.request.Key})
	}
}

// notifySettled tells what was settled since it was last asked, in the order of the batch. At the end of a batch that includes what lies behind an event that is not: it
// will come again, and count again, as a duplicate.
func (b *batch) notifySettled(rest bool) {
	if len(b.p.obs.settled) == 0 {
		return
	}
	var e observe.SettledEvent
	total := 0
	flush := func() {
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
		t := &b.tasks[i]
		if !t.settled {
			continue
		}
		topic, partition := t.place()
		if total > 0 && (e.Partition != partition || e.Topic != topic || e.Deferred != (t.deferred != nil)) {
			flush()
		}
		if total == 0 {
			e = observe.SettledEvent{Group: b.p.cfg.Group, Topic: topic, Partition: partition, Deferred: t.deferred != nil}
		}
		e.Counts[t.settlement]++
		total++
	}
	flush()
}

// place is where the delivery was fetched from.
func (t *task) place() (topic string, partition int32) {
	if c := t.copied; c != nil && c.topic != "" {
		return c.topic, c.partition
	}
	return t.message.Topic, t.message.Partition
}
