package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/observe"
)

// This file tells logs and observers what happened. A log line says that a state changed; what happens to every event
// is for observers, and at level debug.

func (p *Processor) messageAttrs(m *idemtype.Message, k dedup.Key) []any {
	attrs := []any{"topic", m.Topic, "partition", m.Partition, "offset", m.Offset}
	if k.ID != "" {
		attrs = append(attrs, "key", k.String())
	}
	return attrs
}

func (p *Processor) taskAttrs(t *task) []any {
	return append(p.messageAttrs(t.message, t.request.Key), "attempt", t.attempt)
}

// timedRun runs the handler on one event and tells what came of it.
func (p *Processor) timedRun(ctx context.Context, t *task, tx any) outcome {
	began := time.Now()
	t.retryPaid = false
	o := p.run(ctx, t, []Input{t.input()}, tx, t.completions)
	if named := namedIn(o.err, 1); named != nil { // a batch handler that names its only event means its error
		o = outcome{}
		if err := named[0]; err != nil {
			o = classify(context.Cause(ctx), err)
		}
	}
	if t.claimed && !t.route.Batch {
		t.route.ahead.Note(time.Since(began))
	}
	p.notifyHandled(ctx, t, time.Since(began), o.err)
	return o
}

// callMany makes a call of a handler and tells of each of its events.
func (p *Processor) callMany(ctx context.Context, c *call, tx any) outcomes {
	began := time.Now()
	in := make([]Input, len(c.tasks))
	for i, t := range c.tasks {
		in[i], t.retryPaid = t.input(), false
	}
	o := newOutcomes(ctx, p.run(ctx, c.tasks[0], in, tx, c.completions), c.tasks)
	took := time.Since(began)
	for _, t := range c.tasks {
		p.notifyHandled(ctx, t, took, o.of(t).err)
	}
	return o
}

func (p *Processor) notifyHandled(ctx context.Context, t *task, took time.Duration, err error) {
	for _, h := range p.obs.handled {
		h.ObserveHandled(ctx, observe.HandledEvent{Group: p.cfg.Group, Message: t.message, Key: t.request.Key, Attempt: t.attempt, Took: took, Err: err})
	}
}

func (p *Processor) observeClaim(ctx context.Context, t *task, v dedup.Verdict, since time.Time, err error) {
	if len(p.obs.claim) == 0 {
		return
	}
	e := observe.ClaimEvent{Group: p.cfg.Group, Message: t.message, Key: t.request.Key, Verdict: v, Took: time.Since(since), Err: err}
	for _, o := range p.obs.claim {
		o.ObserveClaim(ctx, e)
	}
}

func (p *Processor) notifyDuplicate(ctx context.Context, t *task, a dedup.Answer) {
	t.handled, t.seen = a.Verdict == dedup.Done || a.Verdict == dedup.Rescheduled, a.First
	if !p.cfg.Shadow {
		t.settlement = observe.SettledDuplicate
	}
	if p.log.Enabled(ctx, slog.LevelDebug) {
		p.log.DebugContext(ctx, "duplicate skipped", append(p.messageAttrs(t.message, t.request.Key), "verdict", a.Verdict.String())...)
	}
	if len(p.obs.duplicate) == 0 {
		return
	}
	e := observe.DuplicateEvent{
		Group: p.cfg.Group, Message: t.message, Key: t.request.Key, Verdict: a.Verdict, SameRecord: a.First.Same(t.message.Origin()), Shadow: p.cfg.Shadow,
	}
	if !a.First.Time.IsZero() && !t.message.Time.IsZero() {
		e.Age = t.message.Time.Sub(a.First.Time)
	}
	for _, o := range p.obs.duplicate {
		o.ObserveDuplicate(ctx, e)
	}
}

// notifyDeferred tells of an event that waits behind another one of its Kafka key. It has not failed.
func (p *Processor) notifyDeferred(ctx context.Context, t *task) {
	if p.log.Enabled(ctx, slog.LevelDebug) {
		p.log.DebugContext(ctx, "event waits behind another one of its key", p.messageAttrs(t.message, t.request.Key)...)
	}
	for _, h := range p.obs.retry {
		h.ObserveRetry(ctx, observe.RetryEvent{Group: p.cfg.Group, Message: t.message, Key: t.request.Key, Deferred: true})
	}
}

// notifyRescheduled tells of an event that is tried again elsewhere.
func (p *Processor) notifyRescheduled(ctx context.Context, t *task, o outcome, topic string) {
	p.log.WarnContext(ctx, o.failed()+", later attempts go on elsewhere",
		append(p.taskAttrs(t), "in", t.action.delay, "to", topic, "error", p.errorText(o.err))...)
	for _, h := range p.obs.retry {
		h.ObserveRetry(ctx, observe.RetryEvent{
			Group: p.cfg.Group, Message: t.message, Key: t.request.Key, Attempt: t.attempt, Delay: t.action.delay, Topic: topic, Later: true, Err: o.err,
		})
	}
}

func (p *Processor) notifyRetry(ctx context.Context, t *task, o outcome) {
	p.log.WarnContext(ctx, o.failed()+", will try again",
		append(p.taskAttrs(t), "in", t.action.delay.Round(time.Millisecond), "error", p.errorText(o.err))...)
	for _, h := range p.obs.retry {
		h.ObserveRetry(ctx, observe.RetryEvent{Group: p.cfg.Group, Message: t.message, Key: t.request.Key, Attempt: t.attempt, Delay: t.action.delay, Err: o.err})
	}
}

// notifyStall tells of a handler that goes on although its time is over.
func (p *Processor) notifyStall(ctx context.Context, t *task) {
	over := t.route.Timeout + p.cfg.Lease
	p.log.ErrorContext(ctx, "handler ignores its cancelled context", append(p.taskAttrs(t), "for", over)...)
	for _, o := range p.obs.stall {
		o.ObserveStall(ctx, observe.StallEvent{Group: p.cfg.Group, Message: t.message, Key: t.request.Key, For: over})
	}
}

func (p *Processor) notifySkipped(ctx context.Context, m *idemtype.Message, typ string, tombstone bool) {
	if !tombstone {
		p.unhandled.note(true)
		if p.unhandled.first(typ) {
			p.log.WarnContext(ctx, "no handler for this event type, skipping", append(p.messageAttrs(m, dedup.Key{}), "type", safetext.Cut(typ, dedup.MaxPart))...)
		}
	}
	for _, o := range p.obs.skipped {
		o.ObserveSkipped(ctx, observe.SkippedEvent{Group: p.cfg.Group, Message: m, Type: typ, Tombstone: tombstone})
	}
}

// unhandled knows which of the last events nobody handled, and which types were told of already.
type unhandled struct {
	mu    sync.Mutex
	ring  [unhandledWindow]bool
	next  int
	seen  int
	count int
	types map[string]struct{}
}

const (
	unhandledWindow = 1000
	unhandledTypes  = 1000
)

// first reports whether typ was never told of. Beyond a thousand types no more are told, so that a producer cannot fill
// the memory.
func (u *unhandled) first(typ string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.types[typ]; known || len(u.types) >= unhandledTypes {
		return false
	}
	if u.types == nil {
		u.types = make(map[string]struct{})
	}
	u.types[typ] = struct{}{}
	return true
}

func (u *unhandled) note(skipped bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ring[u.next] {
		u.count--
	}
	if skipped {
		u.count++
	}
	u.ring[u.next] = skipped
	u.next = (u.next + 1) % unhandledWindow
	u.seen = min(u.seen+1, unhandledWindow)
}

// mostSkipped reports whether more than half of a full window was skipped.
func (u *unhandled) mostSkipped() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen == unhandledWindow && u.count > unhandledWindow/2
}
