package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/redact"
	"github.com/idem-go/idem/internal/words"
)

// inPlace is how long the retries in place of one event take by default.
const inPlace = 5 * time.Second

// checkSettings compares the settings with each other, without network.
func (d *examination) checkSettings(r *Findings) {
	d.checkConsumer(r)
	d.opt.checkTimes(r)
	d.opt.checkLease(r)
	d.checkNames(r)
	d.checkStores(r)
}

// checkConsumer lets the consumer check the settings.
func (d *examination) checkConsumer(r *Findings) {
	o := &d.opt
	_, err := consumer.DefaultSaramaConfig(consumer.Config{
		Group: cmp.Or(d.in.Group, "idem"), Topics: o.Topics,
		Lease: o.Lease, Grace: o.Grace, Lanes: o.Lanes,
		Sarama: func(sc *sarama.Config) {
			sc.Consumer.Group.Rebalance.Timeout = o.Rebalance
			sc.Consumer.Group.Session.Timeout = o.Session
		},
	})
	detail := "a consumer starts"
	if err != nil {
		detail = strings.ReplaceAll(err.Error(), "\n", "; ")
	} else if o.Lanes > 256 {
		detail = fmt.Sprintf("Lanes is %d, not between 1 and 256", o.Lanes)
		err = errors.New(detail)
	}
	r.choose("settings.consumer", "", detail, choice{err != nil, Bad, detail, ""})
}

// checkTimes compares the times of one event with each other.
func (o *Options) checkTimes(r *Findings) {
	total := o.Lease + inPlace + o.Rebalance
	for _, delay := range o.RetryDelays {
		total += delay
	}
	r.choose("settings.retention", "",
		fmt.Sprintf("%s, and lease, retries and a rebalance take %s", o.Retention, total),
		choice{o.Retention < total, Bad,
			fmt.Sprintf("retention %s is shorter than lease %s, retries and one rebalance "+
				"together, %s: the store forgets an event that is still in flight",
				o.Retention, o.Lease, total),
			fmt.Sprintf("idem.Retention of at least %s", total)})
	r.choose("settings.deadline", "",
		fmt.Sprintf("handlers take at most %s, grace %s, rebalances %s",
			o.Timeout, o.Grace, o.Rebalance),
		choice{o.Timeout > o.Rebalance, Bad,
			fmt.Sprintf("a handler may take %s, but a rebalance waits for %s only: a slower "+
				"worker is removed from the group, and its partitions are handled twice",
				o.Timeout, o.Rebalance),
			"idem.Timeout below the rebalance timeout, " +
				"or a longer Consumer.Group.Rebalance.Timeout"},
		choice{o.Timeout > o.Grace, Warn,
			fmt.Sprintf("a handler may take %s, but a stop or a rebalance waits for %s only: "+
				"each deployment cancels handlers, whose effect is then uncertain",
				o.Timeout, o.Grace),
			fmt.Sprintf("Config.Grace %s, and a rebalance timeout of one and a half times that",
				o.Timeout)})
}

// checkLease checks the lease and the session.
func (o *Options) checkLease(r *Findings) {
	const remedy = "Config.Lease 30s"
	r.choose("settings.lease", "", o.Lease.String(),
		choice{o.Lease < time.Second, Bad, "a lease below 1s is refused", remedy},
		choice{o.Lease < 5*time.Second, Warn,
			fmt.Sprintf("a pause of %s, by garbage collection or a busy host, loses claims while "+
				"their handlers run", o.Lease), remedy},
		choice{o.Lease > 5*time.Minute, Warn,
			fmt.Sprintf("the event of a dead worker waits for %s, and its partition too", o.Lease),
			remedy + "; the leases of longer runs are renewed"})
	const heartbeat = 3 * time.Second
	r.choose("settings.session", "", o.Session.String(),
		choice{o.Session < 3*heartbeat, Warn,
			fmt.Sprintf("a worker is removed from its group after %s, which is less than three "+
				"heartbeats: its partitions move at every pause", o.Session),
			"Consumer.Group.Session.Timeout 20s"})
}

func (d *examination) checkNames(r *Findings) {
	const id = "settings.dlq.name"
	if d.in.Group == "" {
		r.say(Skipped, id, "", "no --group, which is part of the names", "")
		return
	}
	topics := d.opt.Topics
	if len(topics) == 0 {
		topics = []string{"topic"} // any short name, to check the group's part of the name
	}
	for _, topic := range topics {
		dlq := d.deadLetters(topic)
		r.choose(id, dlq, "a legal name",
			choice{!legalTopic.MatchString(dlq), Bad,
				fmt.Sprintf("%q is no legal name of a topic: Kafka requires letters, digits, "+
					"'.', '_' and '-', at most 249 of them. No dead letter can be sent", dlq),
				"Config.DeadLetterTopic with legal names"},
			choice{slices.Contains(d.opt.Topics, dlq), Bad,
				"the topic is consumed as well: its dead letters would circulate",
				"remove the topic from the consumed topics"})
	}
}

// schemes are the schemes of URLs that may be shown. Any other text before "://" may be a part of a
// password (G-04).
var schemes = []string{
	"mem", "memory", "memstore", "mysql", "mongodb", "mongodb+srv", "http", "https", "file",
	"sqlite", "dynamodb", "kafka",
}

func (d *examination) checkStores(r *Findings) {
	if len(d.in.Stores) == 0 {
		for _, id := range []string{
			"settings.store.volatile", "settings.store.tls", "settings.pool",
		} {
			r.say(Skipped, id, "", "no --store", "")
		}
		return
	}
	for i := range d.in.Stores {
		l := &d.in.Stores[i]
		kind := l.kind()
		scheme, _, _ := strings.Cut(l.URL, "://")
		memory := strings.HasPrefix(scheme, "mem")
		on := string(kind)
		if kind == "" && slices.Contains(schemes, scheme) {
			on = scheme
		}
		r.choose("settings.store.volatile", on, "the store is a database",
			choice{kind == "" && memory, Bad,
				"a store in memory is lost with its process, while the offsets stay committed",
				"sqlstore/sqlite for one process, pgstore or redisstore; memstore is for tests"},
			choice{kind == "", Bad, "only URLs with postgres://, mysql://, redis:// and " +
				"sqlite: are supported (this one is not shown, it may have a password)", ""})
		switch kind {
		case Postgres:
			d.checkPostgresAccess(r, l)
		case Redis:
			d.checkRedisAccess(r, l)
		case SQL:
			checkSQLAccess(r, l)
		}
	}
}

// badURL is the detail of a URL that cannot be parsed.
const badURL = "the URL cannot be parsed (not shown, it may have a password)"

func (d *examination) checkPostgresAccess(r *Findings, l *Store) {
	cfg, err := l.config()
	if err != nil {
		r.say(Bad, "settings.store.tls", "postgres", badURL,
			"postgres://user:password@host:5432/database")
		return
	}
	c := cfg.ConnConfig
	on := postgresName(&c.Config)
	all := []endpoint{{c.Host, c.TLSConfig}}
	for _, f := range c.Fallbacks {
		all = append(all, endpoint{f.Host, f.TLSConfig})
	}
	const remedy = "sslmode=verify-full in the URL"
	transportOf(all).judge(r, on, remedy, remedy)
	d.checkPool(r, on, d.poolOf(cfg))
}

// checkPool compares the connections of a worker with its lanes. n is the number of connections.
func (d *examination) checkPool(r *Findings, on string, n int) {
	lanes := d.opt.Lanes
	inTx, enough := transactionsOf(n), lanes+1
	for transactionsOf(enough) < lanes {
		enough++
	}
	r.choose("settings.pool", on,
		fmt.Sprintf("%s, of which %d for transactions, for %s a partition",
			words.Plain(n, "connection"), inTx, words.Plain(lanes, "lane")),
		choice{n == 1, Bad, "one connection: a handler that reads beside its transaction waits " +
			"for itself forever", "pool_max_conns=4 or more in the URL"},
		choice{lanes > inTx, Warn,
			fmt.Sprintf("%s let %s run at once, and one partition has %s: the others wait",
				words.Plain(n, "connection"), words.Plain(inTx, "transaction"), words.Plain(lanes, "lane")),
			fmt.Sprintf("pool_max_conns=%d in the URL, or fewer lanes", enough)})
}

// transactionsOf returns how many connections of a pool pgstore uses for transactions.
func transactionsOf(pool int) int { return max(1, pool-max(1, pool/4)) }

func (d *examination) checkRedisAccess(r *Findings, l *Store) {
	if redact.SplitsPassword(l.URL) {
		r.say(Bad, "settings.store.tls", "redis", badURL, "redis://user:password@host:6379/0")
		return
	}
	access := l.redisAccess()
	t, on := transportOf(access.endpoints()), access.name()
	const encrypt = "rediss:// in the URL, and tls-port on the server"
	const verify = "no skip_verify in the URL, and a certificate that the host trusts; " +
		"or RootCAs in the TLSConfig of the client"
	t.judge(r, on, encrypt, verify, choice{t.plain && access.password, Bad,
		"the password is sent unencrypted", encrypt})
	r.say(Skipped, "settings.pool", on, "no transaction holds a connection", "")
}
