package otelidem_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
)

// New measures with the global providers. A program sets them first, for example to those of the
// SDK with an exporter. The configurations of consumers and processors take the observer.
func ExampleNew() {
	telemetry, err := otelidem.New()
	if err != nil {
		panic(err)
	}
	defer telemetry.Close()
	router := idem.NewRouter()
	idem.On(router, "paid", func(context.Context, idem.Event[struct{}]) error { return nil })
	p, err := idem.NewProcessor(router, idem.Config{
		Store: memstore.New(), Scope: "billing", Group: "billing",
		Observers: []observe.Observer{telemetry}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	settled, err := p.HandleBatch(context.Background(), []*idem.Message{
		{Topic: "orders", Offset: 1, Value: []byte(`{"event_id":"e1","type":"paid"}`)},
		{Topic: "orders", Offset: 2, Value: []byte(`{"event_id":"e1","type":"paid"}`)},
	})
	fmt.Println(settled, err)
	// Output: 2 <nil>
}
