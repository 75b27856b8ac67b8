package idem_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
)

// schemaService is a Decoder that asks a service for a schema once.
type schemaService struct{ schema atomic.Bool }

func (r *schemaService) Decode(ctx context.Context, m *idem.Message, into any) error {
	if !r.schema.Load() {
		if err := ctx.Err(); err != nil { // the first call: say that a question is needed
			return err
		}
		fmt.Println("ask for the schema") // an outage: return idem.Unavailable(err)
		r.schema.Store(true)
	}
	return json.Unmarshal(m.Value, into)
}

// A decoder with a cache is asked first, and may use its service when no claim is held.
func ExampleDecodeWith() {
	type Payment struct {
		ID     string `json:"id"`
		Amount int    `json:"amount"`
	}
	schemas := &schemaService{}
	r := idem.NewRouter(
		idem.DecodeWith(schemas), idem.Type(idem.Fixed("paid")),
		idem.ID(idem.FromData("id", schemas, func(p Payment) (string, error) { return p.ID, nil })),
	)
	idem.On(r, "paid", func(_ context.Context, e idem.Event[*Payment]) error {
		fmt.Println(e.ID, e.Data.Amount)
		return nil
	})
	p, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(), Scope: "billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		m := &idem.Message{Topic: "payments", Value: []byte(`{"id":"p1","amount":7}`)}
		if err := p.Handle(context.Background(), m); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println(p.Close())
	// Output:
	// ask for the schema
	// p1 7
	// <nil>
}

// Debezium's outbox event router writes the ID of an event into the header id. A change event has
// the row below payload.after, or below payload.before for a delete.
func ExampleFromHeader_debezium() {
	router := &idem.Message{Headers: []idem.Header{
		{Key: "id", Value: []byte("8f1c")}, {Key: "type", Value: []byte("order.created")},
	}}
	fmt.Println(idem.FromHeader("id").Extract(router))
	fmt.Println(idem.FromHeader("type").Extract(router))

	row := idem.FirstOf(idem.FromJSON("payload.after.id"), idem.FromJSON("payload.before.id"))
	change := idem.Joined(idem.FromJSON("payload.source.table"), row, idem.FromJSON("payload.source.lsn"))
	for _, value := range []string{
		`{"payload":{"op":"u","before":{"id":7},"after":{"id":7},"source":{"table":"orders","lsn":41}}}`,
		`{"payload":{"op":"d","before":{"id":7},"after":null,"source":{"table":"orders","lsn":42}}}`,
	} {
		fmt.Println(change.Extract(&idem.Message{Value: []byte(value)}))
	}
	// Output:
	// 8f1c <nil>
	// order.created <nil>
	// orders:7:41 <nil>
	// orders:7:42 <nil>
}
