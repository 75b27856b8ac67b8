package cloudevents_test

import (
	"context"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/cloudevents"
	"github.com/idem-go/idem/dedup/memstore"
)

func Example() {
	type Payment struct {
		Amount int `json:"amount"`
	}
	r := idem.NewRouter(cloudevents.Options()...)
	idem.On(r, "com.example.paid", func(_ context.Context, e idem.Event[Payment]) error {
		fmt.Println(e.ID, e.Data.Amount)
		return nil
	})
	p, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(), Scope: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	structured := &idem.Message{
		Topic:   "shop",
		Headers: []idem.Header{{Key: "content-type", Value: []byte("application/cloudevents+json")}},
		Value: []byte(`{"specversion":"1.0","type":"com.example.paid","source":"shop","id":"1",
			"data":{"amount":7}}`),
	}
	fmt.Println(p.Handle(context.Background(), structured))
	fmt.Println(p.Close())
	// Output:
	// joined:shop:1 7
	// <nil>
	// <nil>
}
