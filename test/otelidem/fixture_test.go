package otelidem_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

var errBoom = errors.New("boom")

// telemetry is an observer with an SDK in memory.
type telemetry struct {
	*otelidem.Observer
	t      testing.TB
	reader *sdkmetric.ManualReader
	meters *sdkmetric.MeterProvider
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
}

func newTelemetry(t testing.TB, opts ...otelidem.Option) *telemetry {
	t.Helper()
	tm := &telemetry{
		t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter(),
	}
	tm.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(tm.reader))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(tm.spans))
	tm.tracer = tracers.Tracer("test")
	all := append([]otelidem.Option{
		otelidem.MeterProvider(tm.meters), otelidem.TracerProvider(tracers),
		otelidem.Propagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
			propagation.Baggage{})),
	}, opts...)
	o, err := otelidem.New(all...)
	require.NoError(t, err)
	tm.Observer = o
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	return tm
}

// point is a series with its value.
type point struct {
	attrs attribute.Set
	value float64 // of a histogram the sum
	count uint64  // of a histogram
}

// series collects all metrics, by name.
func (tm *telemetry) series() map[string][]point {
	var all metricdata.ResourceMetrics
	require.NoError(tm.t, tm.reader.Collect(context.Background(), &all))
	out := map[string][]point{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			out[m.Name] = append(out[m.Name], points(m.Data)...)
		}
	}
	return out
}

func points(data metricdata.Aggregation) (ps []point) {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{attrs: p.Attributes, value: float64(p.Value)})
		}
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{attrs: p.Attributes, value: float64(p.Value)})
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{attrs: p.Attributes, value: p.Value})
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{attrs: p.Attributes, value: p.Sum, count: p.Count})
		}
	case metricdata.Histogram[int64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{attrs: p.Attributes, value: float64(p.Sum), count: p.Count})
		}
	default:
		panic(fmt.Sprintf("%T", data))
	}
	return ps
}

// sum adds up the series of a metric that have all these labels, given as "key=value".
func (tm *telemetry) sum(name string, labels ...string) int {
	total := 0.0
	for _, p := range tm.series()[name] {
		if has(p.attrs, labels...) {
			total += p.value
		}
	}
	return int(total)
}

// count returns the number of values in the histogram.
func (tm *telemetry) count(name string, labels ...string) (n uint64) {
	for _, p := range tm.series()[name] {
		if has(p.attrs, labels...) {
			n += p.count
		}
	}
	return n
}

func has(set attribute.Set, labels ...string) bool {
	for _, l := range labels {
		k, want, _ := strings.Cut(l, "=")
		v, ok := set.Value(attribute.Key(k))
		if !ok && want != "" || ok && v.String() != want {
			return false
		}
	}
	return true
}

// size is the number of all series of all metrics.
func (tm *telemetry) size() (n int) {
	for _, ps := range tm.series() {
		n += len(ps)
	}
	return n
}

// attr is an attribute of a span as text. It is empty if the attribute is missing.
func attr(kvs []attribute.KeyValue, key string) string {
	for _, kv := range kvs {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

// ended returns the spans by name.
func (tm *telemetry) ended(name string) (spans tracetest.SpanStubs) {
	for _, s := range tm.spans.GetSpans() {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	return spans
}

// paid is the event type of the handlers in these tests.
type paid struct {
	EventID string `json:"event_id"`
	Type    string `json:"type"`
}

func message(id string, offset int64) *idem.Message { return typed("paid", id, offset) }

func typed(typ, id string, offset int64) *idem.Message {
	return &idem.Message{
		Topic: "orders", Partition: 1, Offset: offset, Key: []byte("customer-4711"),
		Time:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Value: fmt.Appendf(nil, `{"event_id":%q,"type":%q}`, id, typ),
	}
}

// traced is a message from a producer with a span.
func (tm *telemetry) traced(m *idem.Message, sampled bool) (*idem.Message, trace.SpanContext) {
	_, span := tm.tracer.Start(context.Background(), "send orders",
		trace.WithSpanKind(trace.SpanKindProducer))
	span.End()
	sc := span.SpanContext()
	if !sampled {
		sc = sc.WithTraceFlags(0)
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc),
		carrier)
	for _, k := range slices.Sorted(maps.Keys(carrier)) {
		m.Headers = append(m.Headers, idem.Header{Key: k, Value: []byte(carrier[k])})
	}
	return m, sc
}

// sink is a producer of dead letters that keeps them.
type sink struct {
	mu   sync.Mutex
	msgs []*idem.Message
}

func (s *sink) Produce(_ context.Context, msgs ...*idem.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.msgs = append(s.msgs, msgs...)
	return nil
}

func (s *sink) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.msgs)
}

// processor has one telemetry and a store in memory.
func (tm *telemetry) processor(r *idem.Router, change ...func(*idem.Config)) *idem.Processor {
	cfg := idem.Config{
		Store: memstore.New(), Scope: "billing", Group: "billing", Producer: &sink{},
		Observers: []observe.Observer{tm.Observer},
		Logger:    slog.New(slog.DiscardHandler), Lease: 10 * time.Second, BusyWait: idem.Forever,
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := idem.NewProcessor(r, cfg)
	require.NoError(tm.t, err)
	tm.t.Cleanup(func() { _ = p.Close() })
	return p
}

func handle(tb testing.TB, p *idem.Processor, msgs ...*idem.Message) {
	tb.Helper()
	n, err := p.HandleBatch(tb.Context(), msgs)
	require.NoError(tb, err)
	require.Equal(tb, len(msgs), n)
}

func succeed(context.Context, idem.Event[paid]) error { return nil }
