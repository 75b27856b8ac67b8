// Command confluent consumes with confluent-kafka-go, a client on librdkafka (cgo), and handles
// each payment once. loop.go is the loop, for a program of your own; README.md explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/runner"
)

// Payment is the data of an event payment.completed.
type Payment struct {
	OrderID int64 `json:"order_id"`
}

func main() {
	brokers := flag.String("brokers", "localhost:9092", "Kafka brokers")
	topic := flag.String("topic", "payments", "topic")
	group := flag.String("group", "orders", "consumer group")
	store := flag.String("redis", "redis://localhost:6379", "Redis `URL` of the store")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, *brokers, *topic, *group, *store); err != nil {
		slog.Error("failed", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, brokers, topic, group, store string) (err error) {
	options, err := redis.ParseURL(store)
	if err != nil {
		return errors.New("-redis is not a URL of Redis")
	}
	cache := redis.NewClient(options)
	defer cache.Close()
	out, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": brokers, "enable.idempotence": true})
	if err != nil {
		return err
	}
	defer out.Close()
	router := idem.NewRouter()
	idem.On(router, "payment.completed", func(_ context.Context, e idem.Event[Payment]) error {
		_, err := fmt.Println("order", e.Data.OrderID, "is paid")
		return err
	})
	processor, err := idem.NewProcessor(router, idem.Config{
		Store: redisstore.New(cache), Scope: group, Producer: producer{out},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, processor.Close()) }()
	in, err := newConsumer(brokers, group)
	if err != nil {
		return err
	}
	upkeep, err := runner.NewUpkeep(processor, runner.UpkeepConfig{
		Group: group, Topics: []string{topic},
		NoOffsets: func(context.Context) (bool, error) { return noOffsets(in, topic) },
	})
	if err != nil {
		return errors.Join(err, in.Close())
	}
	l := &loop{
		client: in, processor: processor, upkeep: upkeep, lanes: lane.Config{Lanes: 16},
		log: slog.Default(),
	}
	return l.run(ctx, []string{topic})
}

// noOffsets reports whether the group has committed no offset on a topic.
func noOffsets(client *kafka.Consumer, topic string) (bool, error) {
	const wait = 5000 // milliseconds
	answer, err := client.GetMetadata(&topic, false, wait)
	if err != nil {
		return false, err
	}
	var partitions []kafka.TopicPartition
	for _, p := range answer.Topics[topic].Partitions {
		partitions = append(partitions, kafka.TopicPartition{Topic: &topic, Partition: p.ID})
	}
	committed, err := client.Committed(partitions, wait)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(committed, func(p kafka.TopicPartition) bool {
		return p.Offset >= 0
	}), nil
}

// newConsumer returns a client with the settings that the loop needs.
func newConsumer(brokers, group string) (*kafka.Consumer, error) {
	return kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers":             brokers,
		"group.id":                      group,
		"enable.auto.commit":            false, // the loop commits settled records
		"auto.offset.reset":             "earliest",
		"isolation.level":               "read_committed",
		"enable.partition.eof":          true, // for reports on idle partitions
		"partition.assignment.strategy": "cooperative-sticky",
	})
}
