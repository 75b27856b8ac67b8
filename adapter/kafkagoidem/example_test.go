package kafkagoidem_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kafkagoidem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/runner"
)

type payment struct{ Order string }

// A whole consumer on kafka-go. The second record is a copy of the first and is not handled again.
func Example() {
	cluster, err := kfake.NewCluster(kfake.SeedTopics(1, "payments")) // a Kafka in this process
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cluster.Close()
	publish(cluster.ListenAddrs(), "evt-1", "evt-1", "evt-2")
	ctx, stop := context.WithCancel(context.Background())

	router := idem.NewRouter(idem.Type(idem.Fixed("payment")), idem.ID(idem.FromHeader("event-id")))
	idem.On(router, "payment", func(_ context.Context, e idem.Event[payment]) error {
		fmt.Println("paid:", e.Data.Order)
		if e.Data.Order == "evt-2" {
			stop()
		}
		return nil
	})
	r, err := kafkagoidem.New(kafkagoidem.Config{
		Brokers: cluster.ListenAddrs(), Group: "billing", Topics: []string{"payments"},
		Store:                  memstore.New(memstore.Volatile()), // in production: Postgres, Redis, ...
		CreateDeadLetterTopics: &runner.TopicSpec{},
		Logger:                 slog.New(slog.DiscardHandler),
	}, router)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := r.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	// Output:
	// paid: evt-1
	// paid: evt-2
}

func publish(brokers []string, ids ...string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()
	for _, id := range ids {
		err := cl.ProduceSync(context.Background(), &kgo.Record{
			Topic: "payments", Value: fmt.Appendf(nil, `{"Order":%q}`, id),
			Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(id)}},
		}).FirstErr()
		if err != nil {
			fmt.Println(err)
			return
		}
	}
}
