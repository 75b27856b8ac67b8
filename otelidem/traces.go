package otelidem

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// maxLinks bounds the links of a span.
const maxLinks = 32

// spanPart has the state of spans.
type spanPart struct {
	recording atomic.Int64 // number of claim groups whose span records
	mu        sync.Mutex
	starts    map[startLabels]*spanStart // bounded by maxSets
}

// startLabels are the common attributes of spans; a spanStart is built from them.
type startLabels struct {
	group, topic string
	typ          string // set for calls only
}

type spanStart struct {
	name string
	opts []trace.SpanStartOption
}

func (p *spanPart) init() { p.starts = make(map[startLabels]*spanStart) }

// start returns the name and the options of a span. Samplers see these.
func (p *spanPart) start(l startLabels) *spanStart {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.starts[l]; ok {
		return s
	}
	s := &spanStart{name: "process " + l.topic}
	kvs := []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrOperation, "process"),
		attribute.String(attrOperationType, "process"),
		attribute.String(attrTopic, l.topic),
	}
	if l.group != "" {
		kvs = append(kvs, attribute.String(attrGroup, l.group))
	}
	if l.typ != "" {
		kvs = append(kvs, attribute.String(attrEventType, l.typ))
	}
	s.opts = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(kvs...)}
	if len(p.starts) < maxSets {
		p.starts[l] = s
	}
	return s
}

// claimGroupState collects the attributes that the span of a claim group gets at the end. The state
// is stored in the context of the group, with the observer as a part of the key. There may be two
// observers, and a handler may call a processor of its own.
type claimGroupState struct {
	span    trace.Span
	records bool // when it began: a handler may end the span
	single  bool

	mu      sync.Mutex
	handled int
	// by transactional handlers before the commit; counts a repeated transaction twice
	undecided  int
	duplicates int
	verdict    dedup.Verdict // the last one
	failed     string        // kind of the first failed call
}

type claimGroupKey struct{ o *Observer }

func (o *Observer) claimGroupOf(ctx context.Context) *claimGroupState {
	s, _ := ctx.Value(claimGroupKey{o}).(*claimGroupState)
	return s
}

// startClaimGroup begins the span of a claim group. Costly attributes are computed for recording
// spans only.
func (o *Observer) startClaimGroup(ctx context.Context, r *observe.ClaimGroup) context.Context {
	m, single, continued := r.Message(0), r.Len() == 1, false
	outer := trace.SpanContextFromContext(ctx)
	if o.continues && single {
		ctx, continued = o.under(ctx, m)
	}
	start := o.spans.start(startLabels{group: r.Group, topic: m.Topic})
	ctx, span := o.tracer.Start(ctx, start.name, start.opts...)
	if !span.IsRecording() && !o.continues {
		if o.claimGroupOf(ctx) != nil { // hide the state of the enclosing group
			ctx = context.WithValue(ctx, claimGroupKey{o}, (*claimGroupState)(nil))
		}
		return ctx
	}
	if span.IsRecording() {
		o.spans.recording.Add(1)
		span.SetAttributes(o.claimGroupAttributes(r)...)
		switch {
		case !continued:
			o.link(span, r)
		case outer.IsValid():
			span.AddLink(trace.Link{SpanContext: outer})
		}
	}
	return context.WithValue(ctx, claimGroupKey{o},
		&claimGroupState{span: span, records: span.IsRecording(), single: single})
}

// under returns a context below the producer's span, with its baggage, if that span was sampled.
func (o *Observer) under(ctx context.Context, m *idem.Message) (within context.Context, ok bool) {
	if !o.mayHave(m, true) {
		return ctx, false
	}
	within = o.prop.Extract(ctx, headerCarrier(m.Headers))
	if sc := trace.SpanContextFromContext(within); !sc.IsValid() || !sc.IsSampled() ||
		!sc.IsRemote() {
		return ctx, false
	}
	return within, true
}

// claimGroupAttributes are the attributes that samplers do not need.
func (o *Observer) claimGroupAttributes(r *observe.ClaimGroup) []attribute.KeyValue {
	m := r.Message(0)
	kvs := make([]attribute.KeyValue, 0, 8)
	kvs = append(kvs, attribute.Bool(attrTx, r.Transactional))
	if r.Len() == 1 {
		return append(kvs, o.eventAttributes(m, r.Key(0))...)
	}
	kvs = append(kvs, attribute.Int(attrBatchCount, r.Len()))
	for i := range r.Len() {
		if x := r.Message(i); x.Partition != m.Partition || x.Topic != m.Topic {
			return kvs
		}
	}
	return append(kvs, attribute.String(attrPartition, strconv.Itoa(int(m.Partition))))
}

// eventAttributes identify the event and its record.
func (o *Observer) eventAttributes(m *idem.Message, k dedup.Key) []attribute.KeyValue {
	kvs := []attribute.KeyValue{
		attribute.String(attrKey, k.String()), attribute.String(attrEventType, k.Type),
	}
	if m.Offset >= 0 {
		kvs = append(kvs, attribute.String(attrPartition, strconv.Itoa(int(m.Partition))),
			attribute.Int64(attrOffset, m.Offset))
	}
	if o.messageKeys && m.Key != nil {
		kvs = append(kvs, textAttribute(attrMessageKey, string(m.Key)))
	}
	return kvs
}

// link adds links to the first 32 sampled spans of producers.
func (o *Observer) link(span trace.Span, r *observe.ClaimGroup) {
	if len(o.fields) == 0 {
		return
	}
	n := r.Len()
	for i, left := 0, maxLinks; i < n && left > 0; i++ {
		sc := o.producerOf(r.Message(i))
		if !sc.IsValid() {
			continue
		}
		l := trace.Link{SpanContext: sc}
		if n > 1 {
			l.Attributes = []attribute.KeyValue{attribute.String(attrKey, r.Key(i).String()),
				attribute.Int64(attrOffset, r.Message(i).Offset)}
		}
		span.AddLink(l)
		left--
	}
}

// endClaimGroup ends the span of a claim group.
func (o *Observer) endClaimGroup(ctx context.Context, r *observe.ClaimGroup, kind string) {
	s := o.claimGroupOf(ctx)
	if s == nil {
		trace.SpanFromContext(ctx).End()
		return
	}
	if s.records {
		o.spans.recording.Add(-1)
		s.mu.Lock()
		kvs := []attribute.KeyValue{attribute.Int(attrGroupHandled, s.handled),
			attribute.Int(attrGroupDuplicates, s.duplicates)}
		if s.single && s.verdict != 0 {
			kvs = append(kvs, attribute.String(attrVerdict, s.verdict.String()))
		}
		if kind == "" || s.failed != "" && kind == otherLabel {
			kind = s.failed
		}
		s.mu.Unlock()
		s.span.SetAttributes(kvs...)
		failAs(s.span, kind)
	}
	s.span.End()
}

// callSpan is the separate span of a call. It is stored in the context under callKey, which calls
// of another processor within the handler inherit.
type callSpan struct {
	call *observe.Call
	span trace.Span
}

type callKey struct{}

// startCall begins the span of a call with one event in a larger group, if traces are continued and
// the producer was sampled.
func (o *Observer) startCall(ctx context.Context, c *observe.Call) context.Context {
	if !o.continues || c.Batch || c.Len() != 1 {
		return ctx
	}
	s, m := o.claimGroupOf(ctx), c.Message(0)
	if s == nil || s.single {
		return ctx
	}
	run := trace.SpanContextFromContext(ctx)
	within, ok := o.under(ctx, m)
	if !ok {
		return ctx
	}
	start := o.spans.start(startLabels{group: c.Group, topic: m.Topic, typ: c.Type})
	within, span := o.tracer.Start(within, start.name, start.opts...)
	if span.IsRecording() {
		span.SetAttributes(append(o.eventAttributes(m, c.Key(0)),
			attribute.Bool(attrTx, c.Transactional), attribute.Int(attrAttempt, c.Attempt(0)))...)
		if run.IsValid() {
			span.AddLink(trace.Link{SpanContext: run})
		}
	}
	return context.WithValue(within, callKey{}, callSpan{c, span})
}

// endCall ends the span of a call, and records the result for the span of the group.
func (o *Observer) endCall(ctx context.Context, c *observe.Call, kind string) {
	if own, ok := ctx.Value(callKey{}).(callSpan); ok && own.call == c {
		failAs(own.span, kind)
		own.span.End()
	}
	if o.spans.recording.Load() == 0 {
		return
	}
	s := o.claimGroupOf(ctx)
	if s == nil {
		return
	}
	good := c.Len()
	var named idem.BatchError
	switch {
	case c.Err == nil:
	case errors.As(c.Err, &named):
		good = max(good-len(named), 0)
	default:
		good = 0
	}
	s.mu.Lock()
	if c.Transactional {
		s.undecided += good
	} else {
		s.handled += good
	}
	if s.failed == "" {
		s.failed = kind
	}
	s.mu.Unlock()
	if kind != "" && !s.single {
		s.span.AddEvent("idem.call.failed", trace.WithAttributes(attribute.String(attrErrorType,
			kind), attribute.String(attrEventType, c.Type)))
	}
}

// recordDuplicate counts a duplicate for the span of its claim group.
func (o *Observer) recordDuplicate(ctx context.Context, v dedup.Verdict) {
	if s := o.claimGroupOf(ctx); s != nil {
		s.mu.Lock()
		s.duplicates++
		s.verdict = v
		s.mu.Unlock()
	}
}

// recordStoreCall records the verdicts for the span of their claim group.
func (o *Observer) recordStoreCall(ctx context.Context, e *observe.StoreCallEvent) {
	if e.Verb != observe.VerbClaim && e.Verb != observe.VerbTransaction {
		return
	}
	s := o.claimGroupOf(ctx)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Err == nil {
		switch {
		case e.Verb == observe.VerbTransaction && e.Keys > 0:
			s.handled += min(s.undecided, e.Verdict(dedup.Fresh))
		case e.Verb == observe.VerbTransaction: // one event, without a claim
			s.handled += min(s.undecided, 1)
		}
		for v, n := range e.Verdicts {
			if n > 0 {
				s.verdict = dedup.Verdict(v) //nolint:gosec // a small index
			}
		}
	}
	s.undecided = 0
}

// addGroupEvent adds an event to the span of a claim group, if there is one.
func (o *Observer) addGroupEvent(ctx context.Context, name string, kvs ...attribute.KeyValue) {
	if o.spans.recording.Load() == 0 {
		return
	}
	if s := o.claimGroupOf(ctx); s != nil && s.span.IsRecording() {
		s.span.AddEvent(name, trace.WithAttributes(kvs...))
	}
}
