package outbox_test

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// printer stands for consumer.OpenProducer.
type printer struct{ done context.CancelFunc }

func (p printer) ProduceEach(_ context.Context, msgs []*idem.Message) []error {
	for _, m := range msgs {
		fmt.Printf("%s %s: %s\n", m.Topic, m.Key, m.Headers[0].Value)
	}
	p.done()
	return make([]error, len(msgs)) // all were acknowledged
}

// Runs a relay inside a service. In a service the store is pgoutbox.New(pool), and the producer
// comes from consumer.OpenProducer.
func ExampleRelay() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	log := newBroker()
	store := newTable(log)
	store.commit(store.draw(), outbox.Entry{Topic: "orders", Key: "order-7", Type: "order.placed", ID: "order-7:placed"})
	log.acked["order-7:placed"] = true

	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store:      store,
		Producer:   printer{done: stop},
		Interval:   100 * time.Millisecond,
		WhenParked: outbox.Halt,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(relay.Run(ctx))
	// Output:
	// orders order-7: order-7:placed
	// <nil>
}
