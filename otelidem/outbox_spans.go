package otelidem

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// An outgoing event has two spans. The span "create" is in the transaction that adds the event, and
// its context is stored in the headers. The span "send" is in the relay, for all events that are
// published together. The consumer's span refers to "create".

const (
	attrMessageID  = "messaging.message.id"
	attrBodySize   = "messaging.message.body.size"
	attrSendFailed = "idem.send.failed"
)

// createKey is the context key of the span of an entry.
type createKey struct{}

// BeginAdd implements [outbox.AddObserver]: BeginAdd begins the span "create" of an entry, unless
// the entry has a trace already.
func (o *Observer) BeginAdd(ctx context.Context, e *outbox.Entry) context.Context {
	if !o.mayTrace || o.hasTrace(e.Headers) {
		return ctx
	}
	topic := strings.ToValidUTF8(e.Topic, "\uFFFD") // the entry is validated later
	ctx, span := o.tracer.Start(ctx, "create "+topic, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(
			attribute.String(attrSystem, kafka), attribute.String(attrOperation, "create"),
			attribute.String(attrOperationType, "create"),
			attribute.String(attrTopic, topic), textAttribute(attrEventType, e.Type),
		))
	if !span.IsRecording() {
		return ctx
	}
	span.SetAttributes(textAttribute(attrMessageID, e.ID),
		attribute.Int(attrBodySize, len(e.Payload)))
	if o.messageKeys && e.Key != "" {
		span.SetAttributes(textAttribute(attrMessageKey, e.Key))
	}
	return context.WithValue(ctx, createKey{}, span)
}

// EndAdd implements [outbox.AddObserver].
func (o *Observer) EndAdd(ctx context.Context, _ *outbox.Entry, err error) {
	if span, ok := ctx.Value(createKey{}).(trace.Span); ok {
		fail(span, err)
		span.End()
	}
}

// hasTrace reports whether the headers contain a trace.
func (o *Observer) hasTrace(headers []idem.Header) bool {
	c := headerCarrier(headers)
	for i := range c {
		if c.has(i, traceparent) {
			return true
		}
		for _, f := range o.fields {
			if c.has(i, f) {
				return true
			}
		}
	}
	return false
}

// startSend begins the span of events that are published together.
func (o *Observer) startSend(ctx context.Context, p *outbox.Publish) context.Context {
	topic, continued := topicOf(p), false
	name := "send"
	kvs := []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrOperation, "send"),
		attribute.String(attrOperationType, "send"),
	}
	if topic != "" {
		name += " " + topic
		kvs = append(kvs, attribute.String(attrTopic, topic))
	}
	if o.continues && p.Len() == 1 {
		ctx, continued = o.under(ctx, addedBy(p.Row(0)))
	}
	ctx, span := o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(kvs...))
	if !span.IsRecording() {
		return ctx
	}
	if p.Len() == 1 {
		e := &p.Row(0).Entry
		span.SetAttributes(attribute.String(attrMessageID, e.ID),
			attribute.String(attrEventType, e.Type), attribute.Int(attrBodySize, len(e.Payload)))
	} else {
		span.SetAttributes(attribute.Int(attrBatchCount, p.Len()))
	}
	if !continued {
		o.linkRows(span, p)
	}
	return ctx
}

// linkRows adds links to the first 32 sampled spans "create" of the rows.
func (o *Observer) linkRows(span trace.Span, p *outbox.Publish) {
	for i, left := 0, maxLinks; i < p.Len() && left > 0; i++ {
		if sc := o.producerOf(addedBy(p.Row(i))); sc.IsValid() {
			span.AddLink(trace.Link{
				SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String(attrMessageID,
					p.Row(i).Entry.ID)},
			})
			left--
		}
	}
}

// addedBy returns a message with the headers of a row, which identify the span "create".
func addedBy(r *outbox.Row) *idem.Message { return &idem.Message{Headers: r.Entry.Headers} }

// endSend ends the span in ctx. kind is that of the first error.
func endSend(ctx context.Context, p *outbox.Publish, kind string) {
	span := trace.SpanFromContext(ctx)
	if kind != "" && span.IsRecording() {
		failed := 0
		for i := range p.Len() {
			if p.Err(i) != nil {
				failed++
			}
		}
		span.SetAttributes(attribute.Int(attrSendFailed, failed))
		failAs(span, kind)
	}
	span.End()
}
