// Package doctor looks for settings of workers, Kafka and stores that lose or double events, and says how to mend them. It
// changes nothing: the test of unique keys writes in a transaction that is rolled back. docs/doctor.md explains each check.
package doctor

import (
	"cmp"
	"context"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/redact"
)

// Verdict is what a check came to.
type Verdict string

const (
	// OK says that something is as it must be.
	OK Verdict = "ok"
	// Warn says that it works, and loses or doubles events under circumstances that the detail names.
	Warn Verdict = "warn"
	// Bad says that it loses, doubles or stops.
	Bad Verdict = "bad"
	// Unknown says that it could not be looked at: that counts as a warning (rule 46).
	Unknown Verdict = "unknown"
	// Skipped says that the check does not apply here.
	Skipped Verdict = "skipped"
)

// Finding is what one check says of one thing.
type Finding struct {
	// ID names the check. IDs are for scripts and stay.
	ID string `json:"id"`
	// On says which topic, store or group; empty: the settings.
	On string `json:"on"`
	// Title is what is so if the check is OK.
	Title string `json:"title"`
	// Verdict is what the check came to.
	Verdict Verdict `json:"verdict"`
	// Detail is what was found. It may quote what a server says, but no password (G-04).
	Detail string `json:"detail"`
	// Remedy is what to do or to type, where there is such a thing.
	Remedy string `json:"remedy,omitempty"`
}

// Findings are in the order of the checks, which is always the same.
type Findings []Finding

// Count counts findings with one of these verdicts.
func (r Findings) Count(verdicts ...Verdict) (n int) {
	for _, f := range r {
		for _, v := range verdicts {
			if f.Verdict == v {
				n++
			}
		}
	}
	return n
}

// Verdict is all in all: Bad if one is, Warn if one warns or is unknown, else OK.
func (r Findings) Verdict() Verdict {
	switch {
	case r.Count(Bad) > 0:
		return Bad
	case r.Count(Warn, Unknown) > 0:
		return Warn
	}
	return OK
}

func (r *Findings) say(v Verdict, id, on, detail, remedy string) {
	*r = append(*r, Finding{ID: id, On: on, Title: titles[id], Verdict: v, Detail: detail, Remedy: remedy})
}

// choose says the first verdict that applies, and ok with fine if none does.
func (r *Findings) choose(id, on, fine string, cases ...choice) {
	for _, c := range cases {
		if c.when {
			r.say(c.verdict, id, on, c.detail, c.remedy)
			return
		}
	}
	r.say(OK, id, on, fine, "")
}

type choice struct {
	when           bool
	verdict        Verdict
	detail, remedy string
}

// Options are the settings of the workers, as far as only their program knows them. Zero values are the library's defaults.
type Options struct {
	// Topics are consumed. By default those the store has on record, else those with committed offsets.
	Topics []string
	// DeadLetterTopic is Config.DeadLetterTopic.
	DeadLetterTopic func(topic string) string
	// RetryDelays are the delays of the group's retry topics.
	RetryDelays []time.Duration
	// Cooperative is Config.Cooperative, and Durable says that the workers use pgstore.Durable.
	Cooperative, Durable bool
	// Retention is the shortest idem.Retention of the handlers, and Timeout the longest idem.Timeout. They default to 7 days and 30 s.
	Retention, Timeout time.Duration
	// Lease and Grace are those of the Config. They default to 30 s.
	Lease, Grace time.Duration
	// Rebalance and Session are sarama's Consumer.Group.Rebalance.Timeout and Consumer.Group.Session.Timeout.
	Rebalance, Session time.Duration
	// Lanes is Config.Lanes. It defaults to 1.
	Lanes int
	// PoolSize is how many connections a worker's Postgres pool may have. By default what the URL or the pool says.
	PoolSize int
	// Instances is how many workers run at once. It defaults to 1.
	Instances int
}

// Defaults are the library's.
func Defaults() Options {
	sc, err := consumer.DefaultSaramaConfig(consumer.Config{})
	if err != nil { // the defaults fit each other: a test says so
		sc = sarama.NewConfig()
	}
	return Options{
		Retention: 7 * 24 * time.Hour, Timeout: 30 * time.Second, Lease: 30 * time.Second, Grace: 30 * time.Second,
		Rebalance: sc.Consumer.Group.Rebalance.Timeout, Session: sc.Consumer.Group.Session.Timeout, Lanes: 1, Instances: 1,
	}
}

func (o Options) withDefaults(group string) Options {
	d := Defaults()
	o.Retention, o.Timeout = cmp.Or(o.Retention, d.Retention), cmp.Or(o.Timeout, d.Timeout)
	o.Lease, o.Grace = cmp.Or(o.Lease, d.Lease), cmp.Or(o.Grace, d.Grace)
	o.Rebalance, o.Session = cmp.Or(o.Rebalance, d.Rebalance), cmp.Or(o.Session, d.Session)
	o.Lanes, o.Instances = cmp.Or(o.Lanes, d.Lanes), cmp.Or(o.Instances, d.Instances)
	if o.DeadLetterTopic == nil {
		o.DeadLetterTopic = idem.DeadLetterTopic(group)
	}
	return o
}

// Store is one store to look at: Pool, Redis or URL.
type Store struct {
	// Pool is a worker's own pool. At most two of its connections are used at a time.
	Pool *pgxpool.Pool
	// Redis is a worker's own client: a redis.Client or a redis.ClusterClient.
	Redis redis.UniversalClient
	// URL is what a worker would open. It is never shown.
	URL string
	// OpenRedis makes a client for a URL of Redis, and a name without credentials. The caller closes the client. It is
	// needed for such a URL unless Offline is set.
	OpenRedis func(context.Context) (client redis.UniversalClient, name string, err error)
}

// Input is what is looked at, and what is known of it.
type Input struct {
	Options
	// Group is the consumer group. It is needed if there is Kafka.
	Group string
	// Scope is that of the store. It defaults to Group.
	Scope string
	// Brokers are named in advice. They default to the addresses that the client knows.
	Brokers []string
	// Kafka returns a client, which the caller closes. Nil: there is no Kafka to be looked at. The client asks for topics
	// and groups by name; it creates none.
	Kafka func() (sarama.Client, error)
	// Stores are looked at one after the other, each for half a minute at most.
	Stores []Store
	// Schema of the tables in Postgres; they are found through the search path by default.
	Schema string
	// Offline says that the settings are only compared with each other, without network.
	Offline bool
	// Redact takes out of a text what must not be shown, beside the passwords of clients, pools and URLs that are given, which
	// never are. Optional.
	Redact func(text string) string
	// Now is the clock of this host. It defaults to time.Now.
	Now func() time.Time
}

// serviceLimit bounds the checks of one store.
const serviceLimit = 30 * time.Second

// examination is one run of all checks.
type examination struct {
	in      Input
	opt     Options
	secrets redact.Secrets

	scopes    scopeRecords // what the stores have on record
	noOffsets bool         // the group has committed nothing on its topics
}

// Examine runs all checks. Its error says that ctx ended: what a check cannot do is a finding. A client of sarama cannot be
// interrupted: a question to Kafka that is under way ends with its time-outs.
//
// It asks a few dozen questions, some of which are not cheap: it is for a start, a deployment, or a page that asks once in a
// while.
func Examine(ctx context.Context, in Input) (Findings, error) {
	d := newExamination(in)
	return d.run(ctx)
}

func newExamination(in Input) *examination {
	if in.Now == nil {
		in.Now = time.Now
	}
	d := &examination{in: in, opt: in.Options.withDefaults(in.Group)}
	for i := range in.Stores {
		d.keepSecrets(&in.Stores[i])
	}
	return d
}

func (d *examination) run(ctx context.Context) (Findings, error) {
	var all, ledgers Findings
	d.checkSettings(&all)
	if d.in.Offline {
		return all, nil
	}
	for i := range d.in.Stores { // before Kafka, since they know the topics
		d.examineStore(ctx, &ledgers, &d.in.Stores[i])
	}
	if err := d.checkKafka(ctx, &all); err != nil {
		return nil, err
	}
	all = append(all, ledgers...)
	d.checkScope(&all)
	return all, nil
}

// checkStore looks at one store, for a bounded time.
func (d *examination) examineStore(ctx context.Context, r *Findings, l *Store) {
	ctx, cancel := context.WithTimeout(ctx, serviceLimit)
	defer cancel()
	switch l.kind() {
	case Postgres:
		d.checkPostgres(ctx, r, l)
	case Redis:
		d.checkRedis(ctx, r, l)
	default: // checkSettings has said so
	}
}

// dead letters is the dead-letter topic of a topic.
func (d *examination) deadLetters(topic string) string { return d.opt.DeadLetterTopic(topic) }
