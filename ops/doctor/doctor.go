// Package doctor examines the settings of workers, Kafka and stores for the ops page: what loses or doubles events, and how to mend it. It
// is what idem doctor does. It is a package of its own since it links the clients of all stores.
package doctor

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/ops"
)

// Config says what is examined. The zero value of a field is its default.
type Config struct {
	// Consumer is the configuration of the consumer: its settings are checked, and Brokers with TLS, SASL and Sarama are how Kafka is
	// reached. Without Brokers and Client only settings and stores are looked at.
	Consumer consumer.Config
	// Client is used for Kafka instead of one that is opened for each examination. It is not closed.
	Client sarama.Client
	// Pools are those of stores and outboxes in Postgres, Redis the clients of those in Redis.
	Pools []*pgxpool.Pool
	Redis []redis.UniversalClient
	// Memory says that a store is in memory.
	Memory bool

	// RetryDelays are the delays of the group's retry topics, and Retention and Timeout the shortest and the longest that handlers have. They
	// default to none, 7 days and 30 s.
	RetryDelays        []time.Duration
	Retention, Timeout time.Duration
	// Durable says that the store uses pgstore.Durable.
	Durable bool
	// Instances is how many workers run at once. Defaults to 1.
	Instances int
}

// New returns what ops.Config.Doctor wants. It asks nobody yet.
func New(cfg Config) func(context.Context) ([]ops.Finding, error) {
	return func(ctx context.Context) ([]ops.Finding, error) {
		in, opened := cfg.input(), sarama.Client(nil)
		if in.Kafka != nil && cfg.Client == nil {
			in.Kafka = func() (client sarama.Client, err error) {
				opened, err = open(cfg.Consumer)
				return opened, err
			}
		}
		found, err := doctor.Examine(ctx, in)
		if opened != nil {
			_ = opened.Close() // it has only read
		}
		all := make([]ops.Finding, len(found))
		for i, f := range found {
			all[i] = ops.Finding{ID: f.ID, On: f.On, Title: f.Title, Verdict: string(f.Verdict), Detail: f.Detail, Remedy: f.Remedy}
		}
		return all, err
	}
}

// The patience with brokers: somebody looks at a page.
const (
	dialTimeout = 5 * time.Second
	readTimeout = 10 * time.Second
)

func open(cfg consumer.Config) (sarama.Client, error) {
	sc, err := consumer.DefaultSaramaConfig(cfg)
	if err != nil {
		return nil, err
	}
	sc.ClientID += "-doctor"
	sc.Net.DialTimeout, sc.Net.ReadTimeout = min(sc.Net.DialTimeout, dialTimeout), min(sc.Net.ReadTimeout, readTimeout)
	sc.Metadata.Retry.Max = min(sc.Metadata.Retry.Max, 1)
	client, err := sarama.NewClient(cfg.Brokers, sc)
	if err != nil { // a nil client of sarama's own type is no nil interface
		return nil, err
	}
	return client, nil
}

func (cfg *Config) input() doctor.Input {
	c := &cfg.Consumer
	in := doctor.Input{
		Group: c.Group, Scope: c.Scope, Brokers: c.Brokers,
		Options: doctor.Options{
			Topics: c.Topics, DeadLetterTopic: c.DeadLetterTopic, RetryDelays: cfg.RetryDelays, Cooperative: c.Cooperative, Durable: cfg.Durable,
			Retention: cfg.Retention, Timeout: cfg.Timeout, Lease: c.Lease, Grace: c.Grace, Lanes: c.Lanes, Instances: cfg.Instances,
		},
	}
	if sc, err := consumer.DefaultSaramaConfig(*c); err == nil {
		in.Rebalance, in.Session = sc.Consumer.Group.Rebalance.Timeout, sc.Consumer.Group.Session.Timeout
	}
	if c.Group != "" && (cfg.Client != nil || len(c.Brokers) > 0) {
		in.Kafka = func() (sarama.Client, error) { return cfg.Client, nil }
	}
	for _, pool := range cfg.Pools {
		in.Stores = append(in.Stores, doctor.Store{Pool: pool})
	}
	for _, client := range cfg.Redis {
		in.Stores = append(in.Stores, doctor.Store{Redis: client})
	}
	if cfg.Memory {
		in.Stores = append(in.Stores, doctor.Store{URL: "memstore://"})
	}
	return in
}
