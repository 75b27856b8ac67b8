package service_test

import (
	"context"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
	"github.com/idem-go/idem/service"
)

// A worker that also publishes events of its handlers. SIGTERM stops the consumer first, then the
// reaper and the relay, and closes the connections at the end.
func ExampleRun() {
	run := func(brokers []string, database string, router *idem.Router) error {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		context.AfterFunc(ctx, stop) // a second signal ends the process at once
		cfg, err := pgxpool.ParseConfig(database)
		if err != nil {
			return err
		}
		pgstore.Configure(cfg)
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		producer, err := consumer.OpenProducer(consumer.Config{Brokers: brokers})
		if err != nil {
			return err
		}
		relay, err := outbox.NewRelay(outbox.RelayConfig{Store: pgoutbox.New(pool), Producer: producer})
		if err != nil {
			return err
		}
		store := pgstore.New(pool)
		worker, err := consumer.New(consumer.Config{
			Brokers: brokers, Group: "orders", Topics: []string{"payments"}, Store: store,
		}, router)
		if err != nil {
			return err
		}
		return service.Run(ctx, service.Config{},
			service.Part{Name: "database", Close: func() error { pool.Close(); return nil }},
			service.Part{Name: "producer", Close: producer.Close},
			service.Part{Name: "relay", Run: relay.Run},
			service.Part{Name: "reaper", Run: pgstore.NewReaper(store, pgstore.ReaperConfig{}).Run},
			service.Part{Name: "consumer", Run: worker.Run},
		)
	}
	_ = run // needs Kafka and Postgres
}
