package idem_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

type OrderCreated struct {
	Email string `json:"email"`
}

var created = &idem.Message{Topic: "orders", Value: []byte(`{"event_id":"42","type":"order.created","email":"a@example.com"}`)}

// An event is handled once, however often it is delivered.
func Example() {
	router := idem.NewRouter()
	idem.On(router, "order.created", func(_ context.Context, e idem.Event[OrderCreated]) error {
		fmt.Println("mail to", e.Data.Email, "for event", e.ID)
		return nil
	})
	p, err := idem.NewProcessor(router, idem.Config{Store: memstore.New(), Scope: "mailer"})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	for range 3 { // a rebalance, a producer's retry
		fmt.Println(p.Handle(context.Background(), created))
	}
	// Output:
	// mail to a@example.com for event 42
	// <nil>
	// <nil>
	// <nil>
}

// A poll loop of your own, with any Kafka client: commit what is settled, and nothing else.
func ExampleProcessor_HandleBatch() {
	router := idem.NewRouter()
	idem.On(router, "order.created", func(context.Context, idem.Event[OrderCreated]) error {
		fmt.Println("handled")
		return nil
	})
	p, err := idem.NewProcessor(router, idem.Config{Store: memstore.New(), Scope: "mailer"})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	client := &anyClient{queue: []*idem.Message{created, created}}
	ctx := context.Background()
	for msgs := client.Poll(); len(msgs) > 0; msgs = client.Poll() {
		for len(msgs) > 0 {
			settled, err := p.HandleBatch(ctx, msgs)
			client.Commit(msgs[:settled])
			msgs = msgs[settled:]
			var wait *idem.WaitError
			switch {
			case errors.As(err, &wait): // busy elsewhere, or the store is down: these messages must come again
				time.Sleep(wait.After)
			case err != nil:
				fmt.Println("stop:", err)
				return
			}
		}
	}
	// Output:
	// handled
	// committed 2
}

type anyClient struct{ queue []*idem.Message }

func (c *anyClient) Poll() []*idem.Message { msgs := c.queue; c.queue = nil; return msgs }

func (c *anyClient) Commit(msgs []*idem.Message) { fmt.Println("committed", len(msgs)) }

// What a handler's error means.
func ExamplePermanent() {
	router := idem.NewRouter()
	idem.On(router, "order.created", func(context.Context, idem.Event[OrderCreated]) error {
		return idem.Permanent(errors.New("no such mailbox"))
	})
	p, err := idem.NewProcessor(router, idem.Config{Store: memstore.New(), Scope: "mailer", Producer: printer{}})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	fmt.Println(p.Handle(context.Background(), created))
	// Output:
	// orders.mailer.dlq: permanent: permanent: no such mailbox
	// <nil>
}

type printer struct{}

func (printer) Produce(_ context.Context, msgs ...*idem.Message) error {
	for _, m := range msgs {
		fmt.Printf("%s: %s: %s\n", m.Topic, headerOf(m, idem.HeaderErrorClass), headerOf(m, idem.HeaderError))
	}
	return nil
}

// At most once: what may have been sent already is left to a person. NotApplied says that surely nothing was.
func ExampleWhenUncertain() {
	router := idem.NewRouter()
	idem.On(router, "order.created", func(_ context.Context, e idem.Event[OrderCreated]) error {
		if e.Attempt == 1 {
			return idem.NotApplied(errors.New("connection refused"))
		}
		return errors.New("time-out after the request was sent")
	}, idem.WhenUncertain(idem.DeadLetterUncertain))
	p, err := idem.NewProcessor(router, idem.Config{Store: memstore.New(), Scope: "sms", Producer: printer{}})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	fmt.Println(p.Handle(context.Background(), created))
	// Output:
	// orders.sms.dlq: failed: time-out after the request was sent
	// <nil>
}

// The identity is a field of the business, not what the broker or the producer's library made up.
func ExampleID() {
	router := idem.NewRouter(idem.Type(idem.Fixed("payment.completed")))
	idem.On(router, "payment.completed", func(_ context.Context, e idem.Event[struct{}]) error {
		fmt.Println(e.ID)
		return nil
	}, idem.ID(idem.Joined(idem.FromJSON("order_id"), idem.Fixed("charge"))))
	p, err := idem.NewProcessor(router, idem.Config{Store: memstore.New(), Scope: "orders"})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	fmt.Println(p.Handle(context.Background(), &idem.Message{Topic: "payments", Value: []byte(`{"order_id":12345}`)}))
	// Output:
	// 12345:charge
	// <nil>
}

// All wiring mistakes come back at once, each with its place.
func ExampleNewProcessor() {
	router := idem.NewRouter()
	idem.On(router, "order.created", func(context.Context, idem.Event[OrderCreated]) error { return nil })
	idem.OnTx(router, "order.paid", func(context.Context, *fakeTx, idem.Event[OrderCreated]) error { return nil })
	_, err := idem.NewProcessor(router, idem.Config{Store: memstore.New()})
	fmt.Println(err)
	// Output:
	// Config.Scope is empty: name who remembers, usually the consumer group
	// example_test.go:150: "order.paid": handler wants a *idem_test.fakeTx, which *memstore.Store does not have
}

// One key for every call to an outside API.
func ExampleEvent_IdempotencyKey() {
	key := dedup.Key{Scope: "orders", Type: "order.created", ID: "42"}
	renamed := dedup.Key{Scope: "orders-v2", Type: "order.created", ID: "42"}
	fmt.Println(len(key.UUID()), key.UUID() == renamed.UUID(), key.UUID("authorize") == key.UUID("capture"))
	// Output: 36 true false
}
