package otelidem_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

// noStore answers at once. It reports one event in five, or all events, as handled before.
type noStore struct{ all bool }

func (l noStore) Claim(
	_ context.Context, _ dedup.Token, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer,
) error {
	for i := range reqs {
		answers[i] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1}
		if l.all || reqs[i].Origin.Offset%5 == 4 {
			answers[i] = dedup.Answer{
				Verdict: dedup.Done, First: dedup.Origin{
					Topic: "orders", Partition: 1, Offset: 1, Time: time.Unix(1767322800, 0),
				},
			}
		}
	}
	return nil
}
func (noStore) Renew(context.Context, time.Duration, []dedup.Claim) error { return nil }
func (noStore) Complete(context.Context, []dedup.Completion) error        { return nil }
func (noStore) Release(context.Context, []dedup.Release) error            { return nil }

func (l noStore) ClaimTx(ctx context.Context, _ time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
	fn func(struct{}) ([]dedup.Completion, error),
) error {
	_ = l.Claim(ctx, dedup.Token{}, 0, reqs, answers)
	if l.all {
		return nil
	}
	_, err := fn(struct{}{})
	return err
}

// dropped discards spans.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                             { return nil }

// BenchmarkTelemetry measures the cost of an event: OnBatchTx in batches of 256 with a fifth of
// duplicates, On, and duplicates only. Each runs without an observer, with metrics, and with a span
// for each run and links to sampled producers. docs/decisions/telemetry.md has figures.
func BenchmarkTelemetry(b *testing.B) {
	handlers := map[string]func(*idem.Router){
		"onbatchtx": func(r *idem.Router) {
			idem.OnBatchTx(r, "paid",
				func(context.Context, struct{}, []idem.Event[paid]) error { return nil })
		},
		"on": func(r *idem.Router) { idem.On(r, "paid", succeed) },
	}
	for _, c := range []struct {
		name, handler string
		store         noStore
	}{{"onbatchtx", "onbatchtx", noStore{}}, {"duplicates", "onbatchtx", noStore{all: true}},
		{"on", "on", noStore{}}} {
		for _, mode := range []string{"off", "metrics", "metrics-and-spans"} {
			b.Run(c.name+"/"+mode,
				func(b *testing.B) { benchmark(b, handlers[c.handler], c.store, mode) })
		}
	}
}

func benchmark(b *testing.B, register func(*idem.Router), store noStore, mode string) {
	r := idem.NewRouter()
	register(r)
	cfg := idem.Config{
		Store: store, Scope: "billing", Group: "billing", Logger: slog.New(slog.DiscardHandler),
	}
	if mode != "off" {
		cfg.Observers = []observe.Observer{benchObserver(b, mode)}
	}
	p, err := idem.NewProcessor(r, cfg)
	require.NoError(b, err)
	defer p.Close()
	const size = 256
	batch := make([]*idem.Message, size)
	for i := range batch {
		batch[i] = benchMessage(i)
	}
	for range 20 { // groups grow
		_, err = p.HandleBatch(b.Context(), batch)
		require.NoError(b, err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += size {
		if _, err := p.HandleBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

func benchObserver(b *testing.B, mode string) *otelidem.Observer {
	var tracers trace.TracerProvider = tracenoop.NewTracerProvider()
	if mode == "metrics-and-spans" {
		sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(dropped{}))
		b.Cleanup(func() { _ = sdk.Shutdown(context.Background()) })
		tracers = sdk
	}
	o, err := otelidem.New(otelidem.MeterProvider(
		sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	),
		otelidem.TracerProvider(tracers), otelidem.Propagator(propagation.TraceContext{}))
	require.NoError(b, err)
	b.Cleanup(func() { _ = o.Close() })
	return o
}

// benchMessage has 250 bytes and a sampled producer.
func benchMessage(i int) *idem.Message {
	id := fmt.Sprintf("0198f3a2-7c1b-7d3e-9f00-%012d", i*7919)
	return &idem.Message{
		Topic: "orders", Partition: 1, Offset: int64(i), Key: []byte(id[28:]),
		Time: time.Unix(1767322800, 0),
		Headers: []idem.Header{{
			Key: "content-type", Value: []byte("application/json"),
		}, {Key: "traceparent",
			Value: fmt.Appendf(nil, "00-0af7651916cd43dd8448eb211c80319c-%016x-01", i+1)}},
		Value: fmt.Appendf(nil,
			`{"event_id":%q,"type":"paid","amount":7,"currency":"EUR","order_id":"order-%06d",`+
				`"customer":"customer-%06d","note":"the quick brown fox jumps over the lazy `+
				`dog, twice, and once more for the road"}`, id, i, i),
	}
}

// BenchmarkObserve measures single calls of the observer, those for every event or every batch.
func BenchmarkObserve(b *testing.B) {
	o := benchObserver(b, "metrics")
	m, k := benchMessage(1), dedup.Key{Scope: "billing", Type: "paid", ID: "e1"}
	settled := observe.SettledEvent{Group: "billing", Topic: "orders", Partition: 1}
	settled.Counts[observe.SettledHandled], settled.Counts[observe.SettledDuplicate] = 200, 56
	call := observe.StoreCallEvent{
		Group: "billing", Store: "*pgstore.Store", Verb: observe.VerbTransaction, Keys: 256,
		Took: time.Millisecond,
	}
	call.Verdicts[dedup.Fresh], call.Verdicts[dedup.Done] = 200, 56
	for name, fn := range map[string]func(){
		"duplicate-of-the-same-record": func() {
			o.ObserveDuplicate(b.Context(), observe.DuplicateEvent{
				Group: "billing", Message: m, Key: k, Verdict: dedup.Done, SameRecord: true,
			})
		},
		"duplicate-elsewhere": func() {
			o.ObserveDuplicate(b.Context(), observe.DuplicateEvent{
				Group: "billing", Message: m, Key: k, Verdict: dedup.Done, Age: time.Minute,
			})
		},
		"settled-batch": func() { o.ObserveSettled(b.Context(), settled) },
		"store-call":    func() { o.ObserveStoreCall(b.Context(), call) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fn()
			}
		})
	}
}
