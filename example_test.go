package idem_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

type OrderCreated struct {
	Email string `json:"email"`
}

var created = &idem.Message{
	Topic: "orders",
	Value: []byte(`{"event_id":"42","type":"order.created","email":"a@example.com"}`),
}

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
	for range 3 { // a rebalance, or a producer that sends again
		fmt.Println(p.Handle(context.Background(), created))
	}
	// Output:
	// mail to a@example.com for event 42
	// <nil>
	// <nil>
	// <nil>
}

// A poll loop of your own, with any Kafka client. Commit only the messages that are settled.
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
			case errors.As(err, &wait): // handled elsewhere, or the store is down
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

// A permanent error makes the event a dead letter at once.
func ExamplePermanent() {
	router := idem.NewRouter()
	idem.On(router, "order.created", func(context.Context, idem.Event[OrderCreated]) error {
		return idem.Permanent(errors.New("no such mailbox"))
	})
	p, err := idem.NewProcessor(router, idem.Config{
		Store: memstore.New(), Scope: "mailer", Producer: printer{},
	})
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
		class, text := headerOf(m, deadletter.HeaderErrorClass), headerOf(m, deadletter.HeaderError)
		fmt.Printf("%s: %s: %s\n", m.Topic, class, text)
	}
	return nil
}

// At most once: an event that may have been sent already becomes a dead letter. NotApplied marks an
// error that surely had no effect, so the handler may run again.
func ExampleWhenUncertain() {
	router := idem.NewRouter()
	idem.On(router, "order.created", func(_ context.Context, e idem.Event[OrderCreated]) error {
		if e.Attempt == 1 {
			return idem.NotApplied(errors.New("connection refused"))
		}
		return errors.New("time-out after the request was sent")
	}, idem.WhenUncertain(idem.DeadLetterUncertain))
	p, err := idem.NewProcessor(router, idem.Config{
		Store: memstore.New(), Scope: "sms", Producer: printer{},
	})
	if err != nil {
		panic(err)
	}
	defer p.Close()
	fmt.Println(p.Handle(context.Background(), created))
	// Output:
	// orders.sms.dlq: failed: time-out after the request was sent
	// <nil>
}

// The event ID comes from a field of the business, never from an offset.
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
	payment := &idem.Message{Topic: "payments", Value: []byte(`{"order_id":12345}`)}
	fmt.Println(p.Handle(context.Background(), payment))
	// Output:
	// 12345:charge
	// <nil>
}

// NewProcessor returns all mistakes at once, each with the file and line of the handler.
func ExampleNewProcessor() {
	router := idem.NewRouter()
	idem.On(router, "order.created",
		func(context.Context, idem.Event[OrderCreated]) error { return nil })
	idem.OnTx(router, "order.paid",
		func(context.Context, *fakeTx, idem.Event[OrderCreated]) error { return nil })
	_, err := idem.NewProcessor(router, idem.Config{Store: memstore.New()})
	fmt.Println(err)
	// Output:
	// Config.Scope is empty: set it, usually to the consumer group
	// example_test.go:163: "order.paid": handler takes a *idem_test.fakeTx, but *memstore.Store has no such transactions
}

// The idempotency key is the same in every scope. A purpose gives each call of an API another key.
func ExampleEvent_IdempotencyKey() {
	key := dedup.Key{Scope: "orders", Type: "order.created", ID: "42"}
	renamed := dedup.Key{Scope: "orders-v2", Type: "order.created", ID: "42"}
	fmt.Println(len(key.UUID()))
	fmt.Println(key.UUID() == renamed.UUID())
	fmt.Println(key.UUID("authorize") == key.UUID("capture"))
	// Output:
	// 36
	// true
	// false
}

// A worker that was paused may write late, after another worker has taken its event over. The fence
// is a number of this event only, so it stands in a row of this event.
func ExampleEvent_Fence() {
	router := idem.NewRouter()
	var warehouse *sql.DB // another database than that of the store
	idem.On(router, "order.packed", func(ctx context.Context, e idem.Event[OrderCreated]) error {
		_, err := warehouse.ExecContext(ctx, `
			INSERT INTO labels (event_id, email, fence) VALUES ($1, $2, $3)
			ON CONFLICT (event_id) DO UPDATE SET email = excluded.email, fence = excluded.fence
			WHERE labels.fence < excluded.fence`, e.ID, e.Data.Email, e.Fence())
		return err
	})
}
