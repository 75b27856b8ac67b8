package otelidem_test

import (
	"context"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/outbox"
)

// onlyOrders samples runs of one topic.
type onlyOrders struct{ sdktrace.Sampler }

func (onlyOrders) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == "process orders" {
		return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

// A handler may have a processor of its own, with the same observer: an unsampled run is not
// mistaken for its enclosing run.
func TestRunWithinARun(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tm := newTelemetry(
		t, otelidem.TracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans),
			sdktrace.WithSampler(onlyOrders{}))),
	)
	inner := tm.processor(router(succeed))
	outer := tm.processor(router(func(ctx context.Context, e idem.Event[paid]) error {
		for range 2 {
			m := message("inner of "+e.ID, 1)
			m.Topic = "payments"
			if _, err := inner.HandleBatch(ctx, []*idem.Message{m}); err != nil {
				return err
			}
		}
		require.True(t, trace.SpanFromContext(ctx).IsRecording(), "still open")
		return nil
	}))
	handle(t, outer, message("e1", 1))
	require.Len(t, spans.GetSpans(), 1)
	require.Equal(t, "1", attr(spans.GetSpans()[0].Attributes, "idem.run.handled"))
	require.Equal(t, "0", attr(spans.GetSpans()[0].Attributes, "idem.run.duplicates"))
	handle(t, outer, message("e1", 1))
	require.Equal(t, "1", attr(spans.GetSpans()[1].Attributes, "idem.run.duplicates"),
		"spans are still looked after")
}

// Two observers of one processor, with two tracer providers, do not mix.
func TestTwoObserversOfAProcessor(t *testing.T) {
	one, two := newTelemetry(t), newTelemetry(t)
	p := one.processor(router(succeed),
		func(c *idem.Config) { c.Observers = append(c.Observers, two.Observer) })
	handle(t, p, message("e1", 1))
	for _, tm := range []*telemetry{one, two} {
		spans := tm.ended("process orders")
		require.Len(t, spans, 1)
		require.Equal(t, "1", attr(spans[0].Attributes, "idem.run.handled"))
		require.Equal(t, "fresh", attr(spans[0].Attributes, "idem.verdict"))
	}
}

// Data may be no valid UTF-8, but OTLP strings must be valid: one invalid string would cost all
// spans of its export.
func TestSpansHaveValidTexts(t *testing.T) {
	const bad = "a\xff\xfe"
	tm := newTelemetry(t, otelidem.MessageKeys())
	m := message("e1", 1)
	m.Key = []byte(bad)
	handle(t, tm.processor(router(succeed)), m)
	entry := &outbox.Entry{ID: bad, Type: bad, Topic: bad, Key: bad}
	tm.EndAdd(tm.BeginAdd(t.Context(), entry), entry, outbox.ErrEntry)
	ctx, span := tm.tracer.Start(t.Context(), "call")
	tm.ObserveDo(ctx, dedup.DoEvent{Key: dedup.Key{ID: bad}})
	span.End()
	checked := 0
	check := func(kvs []attribute.KeyValue) {
		for _, kv := range kvs {
			require.True(t, utf8.ValidString(kv.Value.String()), kv.Key)
			checked++
		}
	}
	for _, s := range tm.spans.GetSpans() {
		require.True(t, utf8.ValidString(s.Name))
		check(s.Attributes)
		for _, e := range s.Events {
			check(e.Attributes)
		}
	}
	require.Greater(t, checked, 15)
	require.Equal(t, "a\uFFFD",
		attr(tm.ended("process orders")[0].Attributes, "messaging.kafka.message.key"))
}

// twice is a store that repeats transactions, and runs some without a claim.
type twice struct {
	noStore
	verdict dedup.Verdict
}

func (l *twice) ClaimTx(_ context.Context, _ time.Duration, _ []dedup.Request,
	answers []dedup.Answer,
	fn func(struct{}) ([]dedup.Completion, error),
) error {
	answers[0] = dedup.Answer{Verdict: l.verdict}
	if l.verdict != dedup.Fresh {
		return nil
	}
	_, _ = fn(struct{}{}) // cannot be serialized
	_, err := fn(struct{}{})
	return err
}

func (l *twice) RunTx(_ context.Context, _ time.Duration, fn func(struct{}) error) error {
	return fn(struct{}{})
}

// A transaction that the store repeats has handled its event once; so has one without a claim, in
// shadow mode.
func TestRunHandled_Transactions(t *testing.T) {
	for _, verdict := range []dedup.Verdict{dedup.Fresh, dedup.Done} {
		tm := newTelemetry(t)
		r := idem.NewRouter()
		idem.OnTx(r, "paid", func(context.Context, struct{}, idem.Event[paid]) error { return nil })
		p := tm.processor(r,
			func(c *idem.Config) { c.Store, c.Shadow = &twice{verdict: verdict}, true })
		handle(t, p, message("e1", 1))
		spans := tm.ended("process orders")
		require.Len(t, spans, 1)
		require.Equal(t, "1", attr(spans[0].Attributes, "idem.run.handled"), verdict)
		require.Equal(t, 1, tm.sum("idem.claims"), "and a transaction without a claim is none")
	}
}
