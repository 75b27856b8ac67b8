package schemaregistry_test

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
	"github.com/idem-go/idem/dedup/memstore"
)

// Payment is the event of this example.
type Payment struct {
	ID     string `avro:"id"`
	Amount int64  `avro:"amount"`
}

func Example() {
	server := srfake.New() // in a program, a schema registry
	defer server.Close()
	registry, err := schemaregistry.New(schemaregistry.Config{URLs: []string{server.URL()}})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A producer encodes a value. The result is the Value of a message or of an outbox entry.
	encoder, err := registry.Encoder(schemaregistry.EncoderConfig{
		Subject: "payments-value", Register: true,
		Schema: `{"type":"record","name":"Payment","fields":[
			{"name":"id","type":"string"},{"name":"amount","type":"long"}]}`,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	value, err := encoder.Encode(ctx, Payment{ID: "p1", Amount: 7})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A consumer decodes it. While the registry is down, events wait.
	r := idem.NewRouter(idem.DecodeWith(registry))
	idem.On(r, "payment.completed", func(_ context.Context, e idem.Event[Payment]) error {
		fmt.Println(e.ID, e.Data.Amount)
		return nil
	})
	p, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(), Scope: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 { // the second delivery is a duplicate
		err = p.Handle(ctx, &idem.Message{Topic: "payments", Value: value, Headers: []idem.Header{
			{Key: "event-id", Value: []byte("e1")}, {Key: "event-type", Value: []byte("payment.completed")},
		}})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(p.Close())
	// Output:
	// e1 7
	// <nil>
}
