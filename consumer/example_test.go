package consumer_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

// orderMail is the payload of the examples.
type orderMail struct {
	EventID string `json:"event_id"`
	Email   string `json:"email"`
}

// A whole consumer: one event arrives three times, one mail goes out.
func ExampleConsumer() {
	brokers, stopKafka := kafka("orders")
	defer stopKafka()
	send(brokers, "orders", `{"event_id":"e-1","type":"order.created","email":"ada@example.com"}`, 3)

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	router := idem.NewRouter()
	idem.On(router, "order.created", func(_ context.Context, e idem.Event[orderMail]) error {
		fmt.Println("mail to", e.Data.Email, "with key", e.IdempotencyKey()[:8])
		return nil
	})
	c, err := consumer.New(consumer.Config{
		Brokers: brokers,
		Group:   "mailer",
		Topics:  []string{"orders"},
		// A real consumer remembers in Postgres or Redis; this one forgets with the process, and
		// says so.
		Store:                  memstore.New(memstore.Volatile()),
		CreateDeadLetterTopics: &consumer.TopicSpec{},
		Observers:              []observe.Observer{untilDuplicates(2, stop)},
		Logger:                 slog.New(slog.DiscardHandler),
	}, router)
	check(err)
	check(c.Run(ctx)) // until ctx ends
	fmt.Println("stopped")
	// Output:
	// mail to ada@example.com with key 57d99c96
	// stopped
}

// A program that has a sarama.ConsumerGroup keeps it, and gives it another handler.
func ExampleGroupHandler() {
	brokers, stopKafka := kafka("orders", "orders.mailer.dlq")
	defer stopKafka()
	send(brokers, "orders", `{"event_id":"e-1","type":"order.created","email":"ada@example.com"}`, 2)
	send(brokers, "orders", `{"event_id":"e-2","type":"order.created","email":7}`, 1)

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	cfg := consumer.Config{
		Group: "mailer", Store: memstore.New(memstore.Volatile()),
		Observers: []observe.Observer{untilDeadLetter(stop)}, Logger: slog.New(slog.DiscardHandler),
	}
	settings, err := consumer.DefaultSaramaConfig(cfg) // or your own, see there
	check(err)
	client, err := sarama.NewClient(brokers, settings)
	check(err)
	defer client.Close()
	producer, err := consumer.NewProducer(client) // for dead letters
	check(err)
	defer producer.Close()
	cfg.Producer = producer

	router := idem.NewRouter()
	idem.On(router, "order.created", func(_ context.Context, e idem.Event[orderMail]) error {
		fmt.Println("mail to", e.Data.Email)
		return nil
	})
	handler, err := consumer.NewGroupHandler(cfg, router)
	check(err)
	handler.UseClient(client) // it asks where partitions end
	group, err := sarama.NewConsumerGroup(brokers, "mailer", settings)
	check(err)
	go func() {
		for err := range group.Errors() {
			handler.NoteError(err)
		}
	}()
	for ctx.Err() == nil && handler.Err() == nil { // the loop that was there before
		if err := group.Consume(ctx, []string{"orders"}, handler); err != nil {
			log.Print(err)
		}
	}
	_ = group.Close()
	fmt.Println("stopped:", handler.Close())
	// Output:
	// mail to ada@example.com
	// dead letter: undecodable
	// stopped: <nil>
}

// kafka starts a Kafka inside this process.
func kafka(topics ...string) (brokers []string, stop func()) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topics...))
	check(err)
	return cluster.ListenAddrs(), cluster.Close
}

// send writes a value so many times.
func send(brokers []string, topic, value string, times int) {
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer(brokers, cfg)
	check(err)
	defer p.Close()
	for range times {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
		check(err)
	}
}

type countDuplicates struct {
	left int
	stop context.CancelFunc
}

// untilDuplicates stops the example after so many duplicates. With one partition, one event is
// handled after the other.
func untilDuplicates(n int, stop context.CancelFunc) observe.Observer {
	return &countDuplicates{n, stop}
}

func (c *countDuplicates) ObserveDuplicate(context.Context, observe.DuplicateEvent) {
	if c.left--; c.left == 0 {
		c.stop()
	}
}

type deadLetterSeen struct{ stop context.CancelFunc }

// untilLetter stops the example after a dead letter.
func untilDeadLetter(stop context.CancelFunc) observe.Observer { return deadLetterSeen{stop} }

func (l deadLetterSeen) ObserveDeadLetter(_ context.Context, e observe.DeadLetterEvent) {
	fmt.Println("dead letter:", e.Class)
	l.stop()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
