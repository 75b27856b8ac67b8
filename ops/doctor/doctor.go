// Package doctor examines the settings of workers, Kafka and stores for the ops page. The checks
// are those of the command idem doctor: they find settings that lose, double or stop events, and
// name the remedies. The package is separate from package ops because it links the clients of all
// stores.
package doctor

import (
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/bootstrap"
	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/ops"
)

// Config has the services to examine. The zero value of a field is its default.
type Config struct {
	// Consumer is the configuration of the consumer. Its settings are checked. Brokers, TLS, SASL
	// and Sarama are used to connect to Kafka. Without Brokers and Client, only settings and stores
	// are checked.
	Consumer consumer.Config
	// Client is the client for Kafka, and stays open. Default: each examination opens and closes a
	// client.
	Client sarama.Client
	// Pools are the pools of stores and outboxes in Postgres. The default is empty.
	Pools []*pgxpool.Pool
	// Redis are the clients of stores in Redis. The default is empty.
	Redis []redis.UniversalClient
	// Memory means that a store is in memory. Default: false.
	Memory bool

	// RetryDelays are the delays of the group's retry topics. The default is empty.
	RetryDelays []time.Duration
	// Retention is the shortest idem.Retention of the handlers. Default: 7 days.
	Retention time.Duration
	// Timeout is the longest idem.Timeout of the handlers. Default: 30 s.
	Timeout time.Duration
	// Durable means that the store uses pgstore.Durable. Default: false.
	Durable bool
	// Instances is the number of workers that run at once. Default: 1.
	Instances int
}

// New returns a function for ops.Config.Doctor. Each call of the function examines the services,
// and returns the findings in a fixed order. A check that fails is a finding. The error means that
// the context has ended. The function is safe for concurrent use. New itself sends no request.
func New(cfg Config) func(context.Context) ([]ops.Finding, error) {
	return func(ctx context.Context) ([]ops.Finding, error) {
		in, opened := cfg.input(), sarama.Client(nil)
		if in.Kafka != nil && cfg.Client == nil {
			in.Kafka = func(ctx context.Context) (client sarama.Client, err error) {
				opened, err = open(ctx, cfg.Consumer)
				return opened, err
			}
		}
		found, err := doctor.Examine(ctx, in)
		if opened != nil {
			_ = opened.Close() // the client has only read
		}
		all := make([]ops.Finding, len(found))
		for i, f := range found {
			all[i] = ops.Finding{
				ID: f.ID, On: f.On, Title: f.Title, Verdict: string(f.Verdict),
				Detail: f.Detail, Remedy: f.Remedy,
			}
		}
		return all, err
	}
}

// The timeouts for brokers are short, because a person waits for the page.
const (
	dialTimeout = 5 * time.Second
	readTimeout = 10 * time.Second
)

func open(ctx context.Context, cfg consumer.Config) (sarama.Client, error) {
	sc, err := consumer.DefaultSaramaConfig(cfg)
	if err != nil {
		return nil, err
	}
	sc.ClientID += "-doctor"
	sc.Net.DialTimeout = min(sc.Net.DialTimeout, dialTimeout)
	sc.Net.ReadTimeout = min(sc.Net.ReadTimeout, readTimeout)
	sc.Metadata.Retry.Max = min(sc.Metadata.Retry.Max, 1)
	client, err := bootstrap.Client(ctx, cfg.Brokers, sc)
	if err != nil { // otherwise the interface would have a nil client, and not be nil
		return nil, err
	}
	return client, nil
}

func (cfg *Config) input() doctor.Input {
	c := &cfg.Consumer
	in := doctor.Input{
		Group: c.Group, Scope: c.Scope, Brokers: c.Brokers,
		Options: doctor.Options{
			Topics: c.Topics, DeadLetterTopic: c.DeadLetterTopic, RetryDelays: cfg.RetryDelays,
			Cooperative: c.Cooperative, Durable: cfg.Durable,
			Retention: cfg.Retention, Timeout: cfg.Timeout, Lease: c.Lease, Grace: c.Grace,
			Lanes: c.Lanes, Instances: cfg.Instances,
		},
	}
	if sc, err := consumer.DefaultSaramaConfig(*c); err == nil {
		in.Rebalance = sc.Consumer.Group.Rebalance.Timeout
		in.Session = sc.Consumer.Group.Session.Timeout
	}
	if c.Group != "" && (cfg.Client != nil || len(c.Brokers) > 0) {
		in.Kafka = func(context.Context) (sarama.Client, error) { return cfg.Client, nil }
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
