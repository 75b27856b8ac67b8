package otelidem

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

// recorder makes spans that record until they end. The tests that read spans use the SDK and are
// in test/otelidem.
type recorder struct{ tracenoop.TracerProvider }

type recorderTracer struct{ tracenoop.Tracer }

type recorderSpan struct {
	tracenoop.Span
	ended bool
}

func (recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return recorderTracer{} }

func (recorderTracer) Start(
	ctx context.Context, _ string, _ ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	span := &recorderSpan{}
	return trace.ContextWithSpan(ctx, span), span
}

func (s *recorderSpan) IsRecording() bool          { return !s.ended }
func (s *recorderSpan) End(...trace.SpanEndOption) { s.ended = true }

// The number of runs with recording spans is zero after the runs, also if a handler has ended the
// span of its run.
func TestRecordingRunsAreCountedDown(t *testing.T) {
	o, err := New(TracerProvider(recorder{}), ContinueTraces())
	require.NoError(t, err)
	defer o.Close()
	type handler = func(context.Context, idem.Event[struct{}]) error
	processor := func(group string, fn handler) *idem.Processor {
		r := idem.NewRouter(idem.Type(idem.Fixed("paid")))
		idem.On(r, "paid", fn)
		p, err := idem.NewProcessor(r, idem.Config{
			Store: memstore.New(), Scope: group, Group: group,
			Observers: []observe.Observer{o}, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}
	var during []int64
	inner := processor("inner", func(context.Context, idem.Event[struct{}]) error {
		during = append(during, o.spans.recording.Load())
		return nil
	})
	outer := processor("outer", func(ctx context.Context, e idem.Event[struct{}]) error {
		_, err := inner.HandleBatch(ctx, []*idem.Message{e.Message})
		trace.SpanFromContext(ctx).End()
		return err
	})
	for i, id := range []string{"a", "b"} {
		m := &idem.Message{
			Topic: "orders", Offset: int64(i), Value: []byte(`{"event_id":"` + id + `"}`),
		}
		_, err := outer.HandleBatch(t.Context(), []*idem.Message{m})
		require.NoError(t, err)
	}
	require.Equal(t, []int64{2, 2}, during, "the run and the run within")
	require.Zero(t, o.spans.recording.Load())
}
