package otelidem_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/otelidem"
)

func router(fn func(context.Context, idem.Event[paid]) error, opts ...idem.Option) *idem.Router {
	r := idem.NewRouter()
	idem.On(r, "paid", fn, opts...)
	return r
}

func TestRunOfOneEvent(t *testing.T) {
	tm := newTelemetry(t)
	var inside trace.SpanContext
	p := tm.processor(router(func(ctx context.Context, _ idem.Event[paid]) error {
		inside = trace.SpanContextFromContext(ctx)
		return nil
	}))
	m, producer := tm.traced(message("e1", 42), true)
	handle(t, p, m)
	handle(t, p, m)
	spans := tm.ended("process orders")
	require.Len(t, spans, 2)
	s := spans[0]
	require.Equal(t, s.SpanContext.SpanID(), inside.SpanID(), "the handler works in it")
	require.Equal(t, trace.SpanKindConsumer, s.SpanKind)
	require.False(t, s.Parent.IsValid())
	for k, want := range map[string]string{
		"messaging.system": "kafka", "messaging.operation.name": "process",
		"messaging.operation.type":   "process",
		"messaging.destination.name": "orders", "messaging.consumer.group.name": "billing",
		"messaging.destination.partition.id": "1",
		"messaging.kafka.offset":             "42", "idem.key": ":billing:paid:e1",
		"idem.event.type": "paid", "idem.verdict": "fresh",
		"idem.run.handled": "1", "idem.run.duplicates": "0", "messaging.batch.message_count": "",
		"messaging.kafka.message.key": "", "error.type": "",
	} {
		require.Equal(t, want, attr(s.Attributes, k), k)
	}
	require.Equal(t, codes.Unset, s.Status.Code)
	require.Len(t, s.Links, 1)
	require.Equal(t, producer.SpanID(), s.Links[0].SpanContext.SpanID())
	require.Equal(t, "done", attr(spans[1].Attributes, "idem.verdict"))
	require.Equal(t, "1", attr(spans[1].Attributes, "idem.run.duplicates"))
	require.Equal(t, "0", attr(spans[1].Attributes, "idem.run.handled"))
}

func TestRunOfManyHasLinks(t *testing.T) {
	tm := newTelemetry(t)
	r := idem.NewRouter()
	idem.OnBatch(r, "paid", func(context.Context, []idem.Event[paid]) error { return nil },
		idem.SameKey())
	p := tm.processor(r)
	var batch []*idem.Message
	producers := map[trace.SpanID]int{}
	for i := range 100 {
		m, sc := tm.traced(message(fmt.Sprintf("e%d", i), int64(i)), i%2 == 1)
		batch = append(batch, m)
		producers[sc.SpanID()] = i
	}
	handle(t, p, batch[:50]...)
	handle(t, p, batch...)
	spans := tm.ended("process orders")
	require.Len(t, spans, 2)
	require.Equal(t, "100", attr(spans[1].Attributes, "messaging.batch.message_count"))
	require.Equal(t, "50", attr(spans[1].Attributes, "idem.run.handled"))
	require.Equal(t, "50", attr(spans[1].Attributes, "idem.run.duplicates"))
	require.Equal(t, "1", attr(spans[1].Attributes, "messaging.destination.partition.id"))
	require.Empty(t, attr(spans[1].Attributes, "idem.key"))
	require.Len(t, spans[0].Links, 25, "to sampled producers only")
	require.Len(t, spans[1].Links, 32)
	for _, l := range spans[1].Links {
		i, known := producers[l.SpanContext.SpanID()]
		require.True(t, known)
		require.Equal(t, 1, i%2)
		require.Equal(t, fmt.Sprintf(":billing:paid:e%d", i), attr(l.Attributes, "idem.key"))
		require.Equal(t, strconv.Itoa(i), attr(l.Attributes, "messaging.kafka.offset"))
	}
}

func TestContinueTraces(t *testing.T) {
	tm := newTelemetry(t, otelidem.ContinueTraces())
	member, err := baggage.NewMember("shop", "7")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	var seen []string
	inside := map[string]trace.SpanContext{}
	p := tm.processor(router(func(ctx context.Context, e idem.Event[paid]) error {
		inside[e.ID] = trace.SpanContextFromContext(ctx)
		seen = append(seen, baggage.FromContext(ctx).Member("shop").Value())
		return nil
	}))
	alone, producer := tm.traced(message("alone", 1), true)
	alone.Headers = append(alone.Headers, idem.Header{Key: "baggage", Value: []byte(bag.String())})
	outer, span := tm.tracer.Start(t.Context(), "outer")
	_, err = p.HandleBatch(outer, []*idem.Message{alone})
	require.NoError(t, err)
	span.End()
	run := tm.ended("process orders")[0]
	require.Equal(t, producer.TraceID(), run.SpanContext.TraceID())
	require.Equal(t, producer.SpanID(), run.Parent.SpanID())
	require.Len(t, run.Links, 1)
	require.Equal(t, span.SpanContext().SpanID(), run.Links[0].SpanContext.SpanID(),
		"where it ran is not lost")
	require.Equal(t, []string{"7"}, seen)

	tm.spans.Reset()
	a, first := tm.traced(message("a", 2), true)
	b, _ := tm.traced(message("b", 3), false)
	handle(t, p, a, b)
	var call, many tracetest.SpanStub
	spans := tm.ended("process orders")
	require.Len(t, spans, 2, "b's producer was not sampled")
	for _, s := range spans {
		if attr(s.Attributes, "messaging.batch.message_count") != "" {
			many = s
		} else {
			call = s
		}
	}
	require.Equal(t, first.SpanID(), call.Parent.SpanID())
	require.Equal(t, first.TraceID(), call.SpanContext.TraceID())
	require.Equal(t, ":billing:paid:a", attr(call.Attributes, "idem.key"))
	require.Equal(t, "1", attr(call.Attributes, "idem.attempt"))
	require.Len(t, call.Links, 1)
	require.Equal(t, many.SpanContext.SpanID(), call.Links[0].SpanContext.SpanID())
	require.Equal(t, call.SpanContext.SpanID(), inside["a"].SpanID())
	require.Equal(t, many.SpanContext.SpanID(), inside["b"].SpanID())
	require.Len(t, many.Links, 1)
	require.Equal(t, "2", attr(many.Attributes, "idem.run.handled"))
}

// A secret in any part of an event or an error appears in no span and no label; the key of the
// event is on spans.
func TestSpansQuoteNothing(t *testing.T) {
	const canary = "canary-c7e2"
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t, otelidem.ContinueTraces())
		r := idem.NewRouter()
		idem.On(r, "paid", func(_ context.Context, e idem.Event[paid]) error {
			switch e.ID {
			case "panics":
				panic(canary)
			case "fails":
				return idem.Permanent(fmt.Errorf("%s: %w", canary, errBoom))
			}
			return fmt.Errorf("retry %s", canary)
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))
		idem.OnBatch(r, "many", func(_ context.Context, es []idem.Event[paid]) error {
			return idem.BatchError{0: fmt.Errorf("%s", canary)}
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))
		p := tm.processor(r)
		secret := func(m *idem.Message) *idem.Message {
			m, _ = tm.traced(m, true)
			m.Key = []byte(canary)
			m.Headers = append(m.Headers, idem.Header{Key: canary, Value: []byte(canary)})
			return m
		}
		bad := secret(message("bad", 4))
		bad.Value = []byte(`{"type":"paid","event_id":"` + canary + `",`)
		handle(t, p, secret(message("panics", 1)), secret(message("fails", 2)),
			secret(message("other", 3)), bad, secret(typed(canary, "x", 5)),
			secret(typed("many", "m1", 6)), secret(typed("many", "m2", 7)))
		require.NotEmpty(t, tm.spans.GetSpans())
		failed := map[string]bool{}
		for _, s := range tm.spans.GetSpans() {
			require.NotContains(t, fmt.Sprintf("%+v", s.Snapshot()), canary)
			require.NotContains(t, fmt.Sprintf("%+v", s), canary)
			for _, kv := range s.Attributes {
				require.NotContains(t, kv.Value.String(), canary)
			}
			if s.Status.Code == codes.Error {
				require.Equal(t, attr(s.Attributes, "error.type"), s.Status.Description)
				failed[s.Status.Description] = true
			}
		}
		require.Equal(t, map[string]bool{"panic": true, "permanent": true, "_OTHER": true,
			"partial": true}, failed)
		require.NotContains(t, fmt.Sprint(tm.series()), canary)
	})
}

// A handler that ends the span of its run, and one that has a processor of its own.
func TestHandlersWithSpansAndProcessorsOfTheirOwn(t *testing.T) {
	tm := newTelemetry(t, otelidem.ContinueTraces())
	inner := idem.NewRouter()
	idem.OnBatch(inner, "paid", func(context.Context, []idem.Event[paid]) error { return nil })
	within := tm.processor(inner, func(c *idem.Config) { c.Group, c.Scope = "inner", "inner" })
	var open []bool
	outer := tm.processor(router(func(ctx context.Context, e idem.Event[paid]) error {
		_, err := within.HandleBatch(ctx, []*idem.Message{e.Message})
		span := trace.SpanFromContext(ctx)
		open = append(open, span.IsRecording())
		span.End()
		return err
	}))
	a, _ := tm.traced(message("a", 1), true)
	b, _ := tm.traced(message("b", 2), true)
	handle(t, outer, a, b)
	handle(t, outer, message("c", 3))
	require.Equal(t, []bool{true, true, true}, open,
		"the calls within do not end the spans without")
}

func TestMessageKeys(t *testing.T) {
	tm := newTelemetry(t, otelidem.MessageKeys())
	handle(t, tm.processor(router(succeed)), message("e1", 1))
	require.Equal(t, "customer-4711",
		attr(tm.ended("process orders")[0].Attributes, "messaging.kafka.message.key"))
}

// Headers with names that HTTP has changed, copies of headers, and invalid ones.
func TestHeaders(t *testing.T) {
	const one, two = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	long := make([]byte, 1<<20)
	for name, c := range map[string]struct {
		headers []idem.Header
		want    string // the producer's span
		state   string
	}{
		"none": {nil, "", ""},
		"other case": {[]idem.Header{{Key: "Traceparent", Value: []byte(one)}},
			"b7ad6b7169203331", ""},
		"the last one": {[]idem.Header{{Key: "traceparent", Value: []byte(one)},
			{Key: "traceparent", Value: []byte(two)}}, "00f067aa0ba902b7", ""},
		"state in parts": {[]idem.Header{{
			Key: "tracestate", Value: []byte("a=1"),
		}, {Key: "traceparent", Value: []byte(one)}, {Key: "Tracestate", Value: []byte("b=2")}},
			"b7ad6b7169203331", "a=1,b=2"},
		"nonsense": {[]idem.Header{{Key: "traceparent", Value: []byte("00-zz")},
			{Key: "", Value: nil}}, "", ""},
		"long":   {[]idem.Header{{Key: "traceparent", Value: long}}, "", ""},
		"binary": {[]idem.Header{{Key: "traceparent", Value: long[:55]}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tm := newTelemetry(t)
			m := message("e1", 1)
			m.Headers = c.headers
			handle(t, tm.processor(router(succeed)), m)
			links := tm.ended("process orders")[0].Links
			if c.want == "" {
				require.Empty(t, links)
				return
			}
			require.Len(t, links, 1)
			require.Equal(t, c.want, links[0].SpanContext.SpanID().String())
			require.Equal(t, c.state, links[0].SpanContext.TraceState().String())
			require.True(t, links[0].SpanContext.IsRemote())
		})
	}
}

// asked counts how often headers were read.
type asked struct {
	propagation.TraceContext
	n int
}

func (a *asked) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	a.n++
	return a.TraceContext.Extract(ctx, c)
}

// Headers are read for recording spans only, and only if the producer was sampled.
func TestHeadersAreReadWhenNeeded(t *testing.T) {
	reader := &asked{}
	unsampled := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for _, tracers := range []trace.TracerProvider{unsampled, tracenoop.NewTracerProvider()} {
		tm := newTelemetry(t, otelidem.Propagator(reader), otelidem.TracerProvider(tracers))
		m, _ := tm.traced(message("e1", 1), true)
		handle(t, tm.processor(router(succeed)), m)
		require.Zero(t, reader.n)
	}
	tm := newTelemetry(t, otelidem.Propagator(reader))
	p := tm.processor(router(succeed))
	m, _ := tm.traced(message("e2", 2), false)
	handle(t, p, m, message("e3", 3))
	require.Zero(t, reader.n)
	m, _ = tm.traced(message("e4", 4), true)
	handle(t, p, m)
	require.Equal(t, 1, reader.n)
}

// A transaction that is rolled back has handled no event, even if its handlers returned nil.
func TestRunsOfTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t)
		r := idem.NewRouter()
		idem.OnBatchTx(
			r, "paid", func(context.Context, struct{}, []idem.Event[paid]) error { return nil },
			idem.SameKey(),
		)
		p := tm.processor(r, func(c *idem.Config) { c.Store = &rolledBack{left: 1} })
		var batch []*idem.Message
		for i := range 8 {
			batch = append(batch, message(fmt.Sprintf("e%d", i), int64(i)))
		}
		handle(t, p, batch...)
		spans := tm.ended("process orders")
		require.Greater(t, len(spans), 1)
		handled, failed := 0, 0
		for _, s := range spans {
			n, err := strconv.Atoi(attr(s.Attributes, "idem.run.handled"))
			require.NoError(t, err)
			require.Equal(t, "true", attr(s.Attributes, "idem.transactional"))
			if s.Status.Code == codes.Error {
				failed++
				require.Zero(t, n)
				require.Equal(t, "unavailable", attr(s.Attributes, "error.type"))
			}
			handled += n
		}
		require.Equal(t, 1, failed)
		require.Equal(t, 7, handled, "and a duplicate")
		require.Equal(t, 1, tm.sum("idem.duplicates"))
		require.Equal(t, 7, tm.sum(consumed, "idem.outcome=handled"))
		require.NotZero(t, tm.count("idem.store.operation.duration",
			"idem.store.operation=transaction", "error.type=unavailable"))
		require.Equal(t, 7, tm.sum("idem.claims", "idem.verdict=fresh"))
	})
}

// rolledBack is a store that rolls back its first transactions.
type rolledBack struct {
	noStore
	left int
}

func (l *rolledBack) ClaimTx(ctx context.Context, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
	fn func(struct{}) ([]dedup.Completion, error),
) error {
	err := l.noStore.ClaimTx(ctx, lease, reqs, answers, fn)
	if l.left--; l.left >= 0 {
		clear(answers)
		return dedup.ErrUnavailable
	}
	return err
}

// spanLog records the span of each log line.
type spanLog struct {
	slog.Handler
	seen map[string]trace.SpanID
}

func (l spanLog) Handle(ctx context.Context, r slog.Record) error {
	l.seen[r.Message] = trace.SpanContextFromContext(ctx).SpanID()
	return nil
}

// A log handler finds the span of the run in the context.
func TestLogLinesAreWrittenInTheirSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t)
		lines := spanLog{
			Handler: slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}),
			seen:    map[string]trace.SpanID{},
		}
		p := tm.processor(router(func(context.Context, idem.Event[paid]) error { return errBoom },
			idem.Retry(idem.RetryPolicy{MaxAttempts: 2})),
			func(c *idem.Config) { c.Logger = slog.New(lines) })
		handle(t, p, message("e1", 1))
		handle(t, p, message("e1", 1))
		spans := tm.ended("process orders")
		require.Len(t, spans, 3)
		require.Equal(t, spans[0].SpanContext.SpanID(),
			lines.seen["handler failed, will try again"])
		require.Equal(t, spans[1].SpanContext.SpanID(), lines.seen["event dead-lettered"])
		require.Equal(t, spans[2].SpanContext.SpanID(), lines.seen["duplicate skipped"])
	})
}

func TestRunThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t)
		p := tm.processor(router(func(_ context.Context, e idem.Event[paid]) error {
			if e.Attempt == 1 {
				return errBoom
			}
			return nil
		}))
		handle(t, p, message("e1", 1))
		spans := tm.ended("process orders")
		require.Len(t, spans, 2)
		require.Equal(t, codes.Error, spans[0].Status.Code)
		require.Equal(t, "_OTHER", attr(spans[0].Attributes, "error.type"))
		require.Equal(t, "0", attr(spans[0].Attributes, "idem.run.handled"))
		require.Equal(t, codes.Unset, spans[1].Status.Code)
		require.Equal(t, "1", attr(spans[1].Attributes, "idem.run.handled"))
		require.Len(t, spans[0].Events, 1)
		require.Equal(t, "idem.retry", spans[0].Events[0].Name)
		require.Equal(t, "in_place", attr(spans[0].Events[0].Attributes, "idem.retry.kind"))
	})
}
