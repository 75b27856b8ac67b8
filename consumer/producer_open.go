package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// OpenProducer connects and returns a producer with a client of its own, for programs that only publish, such as the relay of an
// outbox. [Producer.Close] closes both.
//
// Of cfg it uses Brokers (required), ClientID, TLS, SASL, AllowInsecure and Sarama, with the same defaults and refusals as a
// consumer; all that is about consuming means nothing here, and Group may be empty.
//
// It is idempotent and waits for all in-sync replicas, so that neither a broker that fails nor sarama's own retries lose, double or
// reorder what was acknowledged; keys go to the partitions where Kafka's Java client puts them (K-35). [Config].Sarama may
// choose another Producer.Partitioner; what would lose or double is refused.
//
// While the leader of a partition changes, a message is tried again for about 15 s, so that a broker of several that restarts is not
// noticed. When no broker can be reached at all, it fails after about two seconds. When brokers take connections and do not answer,
// [Producer.ProduceEach] returns after 30 s.
//
// The error names all that is wrong with cfg, or says why no broker was reached, after 10 s for each of them at most. It matches
// [ErrUnauthorized] if the user has Write on no topic.
func OpenProducer(cfg Config) (*Producer, error) {
	sc, err := producerConfig(cfg)
	if err != nil {
		return nil, err
	}
	conns := newConnections(sc)
	client, err := sarama.NewClient(cfg.Brokers, conns.config(sc))
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	p, err := NewProducer(client)
	if errors.Is(err, ErrUnauthorized) {
		err = fmt.Errorf("%w: grant it: %s", err, cfg.aclCommand("topic", "<topic>", "Write"))
	}
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p.conns, p.patience, p.away = conns, producerPatience, newAwayParts(client)
	return p, nil
}

// The times of a producer that stands alone. Sessions do not depend on its metadata, so that it may ask for a missing topic
// less often than a consumer does: it learns sooner that a topic is missing, or that no broker is there. Messages are tried
// again at a pace that outlives the election of a leader.
const (
	producerAsks     = 3 // beside the first
	producerAskPause = 100 * time.Millisecond
	producerRetries  = 20
	producerPause    = 100 * time.Millisecond
	producerMaxPause = time.Second
	producerRead     = 15 * time.Second // more than Producer.Timeout, which the broker waits for its replicas
	producerLeave    = 5 * time.Second  // of Close, then connections are cut
	producerPatience = 30 * time.Second // sarama counts attempts, and each may take as long as a broker is silent
)

func producerConfig(cfg Config) (*sarama.Config, error) {
	cfg = cfg.withDefaults()
	sc := sarama.NewConfig()
	sc.ClientID = cfg.ClientID
	setNet(sc, cfg)
	setProducer(sc)
	sc.Net.ReadTimeout = producerRead
	sc.Metadata.Full = false // what it publishes to only
	sc.Metadata.Retry.Max, sc.Metadata.Retry.Backoff = producerAsks, producerAskPause
	sc.Producer.Retry.Max, sc.Producer.Retry.BackoffFunc = producerRetries, producerBackoff
	if cfg.Sarama != nil {
		cfg.Sarama(sc)
	}
	problems := append(checkProducer(sc), checkSecurity(sc, cfg.AllowInsecure)...)
	refuse := func(bad bool, text string) {
		if bad {
			problems = append(problems, errors.New(text))
		}
	}
	refuse(len(cfg.Brokers) == 0, "Config.Brokers is empty")
	refuse(!sc.Producer.Idempotent, "sarama: Producer.Idempotent must be true: its retries would double events, and change their order")
	refuse(sc.ClientID == "sarama", "ClientID must not be sarama's default")
	if err := sc.Validate(); err != nil {
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return sc, nil
}

// producerBackoff is the pause before another attempt.
func producerBackoff(retries, _ int) time.Duration {
	return min(producerMaxPause, producerPause*time.Duration(max(retries, 1)))
}

// closeClient closes the client when what is under way was sent, or has had its time. The function returned is to be called when all
// has its result. The connections are cut first: the client waits for locks that requests hold until their read time-out.
func (p *Producer) closeClient() (closed func()) {
	cut := time.AfterFunc(producerLeave, func() {
		p.conns.cut()
		_ = p.client.Close()
	})
	return func() {
		cut.Stop()
		p.conns.cut()        // it may be asking for a topic
		_ = p.client.Close() // twice is an error of no meaning
		p.topics.running.Wait()
	}
}
