package otelidem_test

import (
	"context"
	"fmt"
	"log/slog"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

// One event arrives three times. A real program has an exporter instead of the reader, and a
// consumer instead of the processor.
func Example() {
	reader := sdkmetric.NewManualReader()
	telemetry, err := otelidem.New(
		otelidem.MeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
	)
	check(err)
	router := idem.NewRouter()
	idem.On(router, "paid", func(context.Context, idem.Event[paid]) error { return nil })
	p, err := idem.NewProcessor(router, idem.Config{
		Store: memstore.New(), Scope: "billing", Group: "billing",
		Observers: []observe.Observer{telemetry}, Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	defer p.Close()
	_, err = p.HandleBatch(context.Background(),
		[]*idem.Message{message("e1", 1), message("e1", 2), message("e1", 3)})
	check(err)

	var all metricdata.ResourceMetrics
	check(reader.Collect(context.Background(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok &&
			m.Name == "messaging.client.consumed.messages" {
			for _, outcome := range []string{"handled", "duplicate"} {
				for _, p := range sum.DataPoints {
					if v, _ := p.Attributes.Value("idem.outcome"); v.AsString() == outcome {
						fmt.Println(outcome, p.Value)
					}
				}
			}
		}
	}
	// Output:
	// handled 1
	// duplicate 2
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
