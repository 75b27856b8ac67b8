package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer/internal/publish"
	"github.com/idem-go/idem/runner"
)

// NewProducer returns a producer on an existing client, such as one for dead letters. The client
// stays the caller's to close, after [Producer.Close].
//
// NewProducer refuses a client that could lose records: Producer.RequiredAcks must be WaitForAll,
// Producer.Return.Successes and Errors must be true. [DefaultSaramaConfig] meets this. An error
// that matches [ErrUnauthorized] means that the user has Write on no topic.
func NewProducer(client sarama.Client) (*Producer, error) {
	p, err := publish.New(client)
	if err != nil {
		return nil, writeError(err)
	}
	var commands runner.Commands
	for _, b := range client.Brokers() {
		commands.Brokers = append(commands.Brokers, b.Addr())
	}
	if sasl := client.Config().Net.SASL; sasl.Enable {
		commands.User = sasl.User
	}
	return &Producer{p, commands}, nil
}

// OpenProducer connects and returns a producer with a client of its own, for programs that only
// publish, such as the relay of an outbox. [Producer.Close] closes both.
//
// Of cfg, OpenProducer uses Brokers (required), ClientID, TLS, SASL, AllowInsecure and Sarama, with
// the defaults and checks of a consumer. The settings for consuming are ignored, and Group may be
// empty.
//
// The producer is idempotent and waits for all in-sync replicas. Neither a failing broker nor
// sarama's retries lose, double or reorder acknowledged records. Keys go to the partitions that
// Kafka's Java client chooses; [Config].Sarama may set another Producer.Partitioner. Settings that
// could lose or double records are refused.
//
// One broker of the list that answers is enough. A broker that is silent during OpenProducer is not
// asked later, unless the cluster names it.
//
// While the leader of a partition changes, a message is retried for about 15 s, so the restart of
// one broker of several goes unnoticed. When no broker can be reached, a message fails after about
// 2 s. When brokers accept connections and do not answer, [Producer.ProduceEach] returns after 30
// s.
//
// The error lists every mistake in cfg, or states why no broker was reached. OpenProducer waits
// 10 s for a first answer, and then 20 s for a producer ID. An error that matches [ErrUnauthorized]
// means that the user has Write on no topic, or that an authorization server refuses the client of
// [SASL].Token.
func OpenProducer(cfg Config) (*Producer, error) {
	return OpenProducerContext(context.Background(), cfg)
}

// OpenProducerContext is [OpenProducer] for a program that may be stopped meanwhile. If ctx ends
// first, the error matches the cause of ctx. The producer itself does not depend on ctx.
func OpenProducerContext(ctx context.Context, cfg Config) (*Producer, error) {
	sc, err := producerConfig(cfg)
	if err != nil {
		return nil, err
	}
	p, err := publish.Open(ctx, cfg.Brokers, sc)
	if err == nil {
		return &Producer{p, cfg.commands()}, nil
	}
	if err = writeError(err); errors.Is(err, sarama.ErrClusterAuthorizationFailed) {
		err = fmt.Errorf("%w: grant it: %s", err, cfg.commands().Grant("topic", "<topic>", "Write"))
	}
	return nil, err
}

// writeError adds ErrUnauthorized to the brokers' answer to a user without Write on any topic.
func writeError(err error) error {
	if errors.Is(err, sarama.ErrClusterAuthorizationFailed) {
		return fmt.Errorf("%w: no right to write to any topic: %w", ErrUnauthorized, err)
	}
	return err
}
