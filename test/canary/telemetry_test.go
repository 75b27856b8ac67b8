package canary

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/outbox"
)

func init() { instruments = append(instruments, telemetry) }

// telemetry is metrics and spans, as exporters get them. Spans have more attributes when traces are
// continued.
func telemetry(t testing.TB) instrument {
	reader, spans := metric.NewManualReader(), tracetest.NewInMemoryExporter()
	seen, err := otelidem.New(
		otelidem.MeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
		otelidem.TracerProvider(trace.NewTracerProvider(trace.WithSyncer(spans))),
		otelidem.Propagator(propagation.TraceContext{}), otelidem.ContinueTraces(),
	)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, seen.Close()) })
	return instrument{
		observers: []observe.Observer{seen}, outbox: []outbox.Observer{seen}, http: seen.ObserveRequest,
		sinks: []sink{
			{"metrics", func() string {
				var all metricdata.ResourceMetrics
				require.NoError(t, reader.Collect(context.Background(), &all))
				text, err := json.Marshal(all)
				require.NoError(t, err)
				return string(text)
			}},
			{"spans", func() string {
				text, err := json.Marshal(spans.GetSpans())
				require.NoError(t, err)
				return string(text)
			}},
		},
	}
}

// The tests look through the real output: an event ID, which may be on spans and in lines, is found
// there, and a label is found among the metrics.
func TestTelemetryIsLookedThrough(t *testing.T) {
	h := newHouse(t)
	r := idem.NewRouter(idem.Type(idem.Fixed("paid")))
	idem.On(r, "paid", func(context.Context, idem.Event[struct{}]) error { return nil })
	p, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(), Scope: canary, Observers: h.observers, Logger: h.log})
	require.NoError(t, err)
	m := &idem.Message{Topic: "t", Value: []byte(`{}`), Headers: []idem.Header{{Key: "event-id", Value: []byte(canary)}}}
	require.NoError(t, p.Handle(t.Context(), m))
	require.NoError(t, p.Close())
	where := h.found()
	for _, out := range []string{"metrics: ", "spans: "} {
		require.True(t, slices.ContainsFunc(where, func(s string) bool { return strings.HasPrefix(s, out) }), "%s%v", out, where)
	}
}
