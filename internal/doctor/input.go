package doctor

import (
	"cmp"
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/redact"
)

// Options are the settings of the workers. The zero value of a field is the default of the library.
type Options struct {
	// Topics are the consumed topics. Default: the topics that the store has on record, or those
	// with committed offsets.
	Topics []string
	// DeadLetterTopic is Config.DeadLetterTopic.
	DeadLetterTopic func(topic string) string
	// RetryDelays are the delays of the group's retry topics. Default: no topics.
	RetryDelays []time.Duration
	// Cooperative is Config.Cooperative.
	Cooperative bool
	// Durable means that the workers use pgstore.Durable.
	Durable bool
	// Retention is the shortest idem.Retention of the handlers. Default: 7 days.
	Retention time.Duration
	// Timeout is the longest idem.Timeout of the handlers. Default: 30 s.
	Timeout time.Duration
	// Lease is Config.Lease. Default: 30 s.
	Lease time.Duration
	// Grace is Config.Grace. Default: 30 s.
	Grace time.Duration
	// Rebalance is sarama's Consumer.Group.Rebalance.Timeout. Default: that of the consumer.
	Rebalance time.Duration
	// Session is sarama's Consumer.Group.Session.Timeout. Default: that of the consumer.
	Session time.Duration
	// Lanes is Config.Lanes. Default: 1.
	Lanes int
	// PoolSize is the greatest number of connections of a worker's Postgres pool. Default: the
	// maximum of the URL or the pool.
	PoolSize int
	// Instances is the number of workers that run at once. Default: 1.
	Instances int
}

// Defaults returns the defaults of the library.
func Defaults() Options {
	sc, err := consumer.DefaultSaramaConfig(consumer.Config{})
	if err != nil { // impossible: a test checks the defaults
		sc = sarama.NewConfig()
	}
	return Options{
		Retention: 7 * 24 * time.Hour, Timeout: 30 * time.Second,
		Lease: 30 * time.Second, Grace: 30 * time.Second,
		Rebalance: sc.Consumer.Group.Rebalance.Timeout,
		Session:   sc.Consumer.Group.Session.Timeout,
		Lanes:     1, Instances: 1,
	}
}

func (o Options) withDefaults(group string) Options {
	d := Defaults()
	o.Retention, o.Timeout = cmp.Or(o.Retention, d.Retention), cmp.Or(o.Timeout, d.Timeout)
	o.Lease, o.Grace = cmp.Or(o.Lease, d.Lease), cmp.Or(o.Grace, d.Grace)
	o.Rebalance, o.Session = cmp.Or(o.Rebalance, d.Rebalance), cmp.Or(o.Session, d.Session)
	o.Lanes, o.Instances = cmp.Or(o.Lanes, d.Lanes), cmp.Or(o.Instances, d.Instances)
	if o.DeadLetterTopic == nil {
		o.DeadLetterTopic = deadletter.Topic(group)
	}
	return o
}

// Input is the services to examine, with the settings of the workers.
type Input struct {
	Options
	// Group is the consumer group. Required with Kafka.
	Group string
	// Scope is the scope of the store. Default: Group.
	Scope string
	// Brokers are the addresses in remedies. Default: the addresses that the client knows.
	Brokers []string
	// Kafka returns a client. The caller closes the client. Nil: Kafka is not examined. The client
	// requests topics and groups by name, and creates no topic.
	Kafka func(ctx context.Context) (sarama.Client, error)
	// Stores are examined one after the other, each for at most half a minute.
	Stores []Store
	// Schema is the schema of the tables in Postgres. Default: found through the search path.
	Schema string
	// Offline compares the settings with each other, without network.
	Offline bool
	// Redact removes secrets from a text. Nil: only the passwords of the given clients, pools and
	// URLs are removed. Those never appear in any case.
	Redact func(text string) string
	// Now is the clock of this host. Default: time.Now.
	Now func() time.Time
}

// examination is one run of all checks.
type examination struct {
	in      Input
	opt     Options
	secrets redact.Secrets

	sources   []string     // the consumed topics, as far as they are known
	scopes    scopeRecords // from the stores
	noOffsets bool         // the group has no committed offset for its topics
}

func newExamination(in Input) *examination {
	if in.Now == nil {
		in.Now = time.Now
	}
	d := &examination{in: in, opt: in.Options.withDefaults(in.Group)}
	d.sources = d.opt.Topics
	for i := range in.Stores {
		in.Stores[i].addSecrets(&d.secrets)
	}
	return d
}

// deadLetters returns the dead-letter topic of a topic.
func (d *examination) deadLetters(topic string) string { return d.opt.DeadLetterTopic(topic) }

// poolOf returns the greatest number of connections of a worker.
func (d *examination) poolOf(cfg *pgxpool.Config) int {
	return cmp.Or(d.opt.PoolSize, int(cfg.MaxConns))
}

// text returns the text of an error without secrets (G-04). Only texts of other programs go through
// text. The doctor's own words never have a password: removing one would reveal a password that is
// a common word, such as "postgres".
func (d *examination) text(err error) string {
	text := d.secrets.Text(err.Error())
	if d.in.Redact != nil {
		text = d.in.Redact(text)
	}
	return text
}
