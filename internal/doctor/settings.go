package doctor

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/internal/redact"
)

// checkSettings compares the settings with each other. It needs no network.
func (d *examination) checkSettings(r *Findings) {
	o := &d.opt
	d.checkConsumer(r)
	total := o.Lease + inPlace + o.Rebalance
	for _, delay := range o.RetryDelays {
		total += delay
	}
	r.choose("settings.retention", "", fmt.Sprintf("%s, and lease, retries and a rebalance take %s", o.Retention, total),
		choice{o.Retention < total, Bad,
			fmt.Sprintf("retention %s is shorter than lease %s, retries and one rebalance together, %s: an event is forgotten while "+
				"it is being handled (rule 8)", o.Retention, o.Lease, total), fmt.Sprintf("idem.Retention of at least %s", total)})
	r.choose("settings.deadline", "", fmt.Sprintf("handlers take at most %s, grace %s, rebalances %s", o.Timeout, o.Grace, o.Rebalance),
		choice{o.Timeout > o.Rebalance, Bad,
			fmt.Sprintf("a handler may take %s, but a rebalance waits %s only: whoever is slower is thrown out of the group, and its "+
				"partitions are handled twice (K-07)", o.Timeout, o.Rebalance), "idem.Timeout below the rebalance time-out, or a longer Consumer.Group.Rebalance.Timeout"},
		choice{o.Timeout > o.Grace, Warn,
			fmt.Sprintf("a handler may take %s, but a stop or a rebalance lets it go on for %s only: each deployment cuts handlers short, "+
				"whose effect is then uncertain (rule 13)", o.Timeout, o.Grace), fmt.Sprintf("Config.Grace %s, and a rebalance time-out of half as much again", o.Timeout)})
	r.choose("settings.lease", "", o.Lease.String(),
		choice{o.Lease < time.Second, Bad, "a lease below 1s is refused", "Config.Lease 30s"},
		choice{o.Lease < 5*time.Second, Warn,
			fmt.Sprintf("a pause of %s, by garbage collection or a busy host, loses claims while their handlers run (R-04)", o.Lease), "Config.Lease 30s"},
		choice{o.Lease > 5*time.Minute, Warn,
			fmt.Sprintf("the event of a worker that died waits for %s, and its partition with it", o.Lease), "Config.Lease 30s; leases of longer runs are renewed"})
	const heartbeat = 3 * time.Second
	r.choose("settings.session", "", o.Session.String(),
		choice{o.Session < 3*heartbeat, Warn,
			fmt.Sprintf("a worker is thrown out of its group after %s, which is less than three heartbeats: its partitions move at every pause", o.Session),
			"Consumer.Group.Session.Timeout 20s"})
	d.checkNames(r)
	d.examineStores(r)
}

// inPlace is how long retries of one event may take in place by default.
const inPlace = 5 * time.Second

// checkConsumer asks the consumer itself what it thinks of the settings.
func (d *examination) checkConsumer(r *Findings) {
	o := &d.opt
	_, err := consumer.DefaultSaramaConfig(consumer.Config{
		Group: cmp.Or(d.in.Group, "idem"), Topics: o.Topics, Lease: o.Lease, Grace: o.Grace, Lanes: o.Lanes,
		Sarama: func(sc *sarama.Config) {
			sc.Consumer.Group.Rebalance.Timeout = o.Rebalance
			sc.Consumer.Group.Session.Timeout = o.Session
		},
	})
	detail := "it does"
	if err != nil {
		detail = strings.ReplaceAll(err.Error(), "\n", "; ")
	} else if o.Lanes > 256 {
		detail = fmt.Sprintf("Lanes is %d, not between 1 and 256", o.Lanes)
		err = fmt.Errorf("lanes")
	}
	r.choose("settings.consumer", "", detail, choice{err != nil, Bad, detail, ""})
}

// legalTopic is what Kafka takes for the name of a topic.
var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (d *examination) checkNames(r *Findings) {
	const id = "settings.dlq.name"
	if d.in.Group == "" {
		r.say(Skipped, id, "", "no --group, which is part of the names", "")
		return
	}
	topics := d.opt.Topics
	if len(topics) == 0 {
		topics = []string{"topic"} // the shortest name that says something about the group's
	}
	for _, topic := range topics {
		letters := d.deadLetters(topic)
		r.choose(id, letters, "a good name",
			choice{!legalTopic.MatchString(letters), Bad,
				fmt.Sprintf("Kafka takes letters, digits, '.', '_' and '-', at most 249 of them: no topic can have the name %q, and no dead letter can be sent", letters),
				"Config.DeadLetterTopic with names of your own"},
			choice{slices.Contains(d.opt.Topics, letters), Bad, "it is consumed as well: its dead letters would go round (T-08)",
				"take it out of the consumed topics"})
	}
}

// schemes are those of URLs that may be shown: what else stands before "://" may be a part of a password (G-04).
var schemes = []string{"mem", "memory", "memstore", "mysql", "mongodb", "mongodb+srv", "http", "https", "file", "sqlite", "dynamodb", "kafka"}

func (d *examination) examineStores(r *Findings) {
	if len(d.in.Stores) == 0 {
		for _, id := range []string{"settings.store.volatile", "settings.store.tls", "settings.pool"} {
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
		r.choose("settings.store.volatile", on, "it does",
			choice{kind == "" && memory, Bad,
				"a store in memory forgets everything with its process, while the offsets stay committed (rule 31)",
				"pgstore or redisstore; memstore is for tests"},
			choice{kind == "", Bad, "only URLs of postgres:// and redis:// are known (this one is not shown, it may hold a password)", ""})
		switch kind {
		case Postgres:
			d.checkPostgresAccess(r, l)
		case Redis:
			d.checkRedisAccess(r, l)
		}
	}
}

func (d *examination) checkPostgresAccess(r *Findings, l *Store) {
	cfg, err := l.config()
	if err != nil {
		r.say(Bad, "settings.store.tls", "postgres", "the URL cannot be parsed (not shown, it may hold a password)", "postgres://user:password@host:5432/database")
		return
	}
	c := cfg.ConnConfig
	on := postgresName(&c.Config)
	plain := c.TLSConfig == nil
	maybe := slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
	unproven := c.TLSConfig != nil && c.TLSConfig.InsecureSkipVerify && c.TLSConfig.VerifyPeerCertificate == nil
	local := isLocal(c.Host)
	r.choose("settings.store.tls", on, localOr(local, "encrypted, and the server proves who it is"),
		choice{!local && plain && !maybe, Warn, "events and results travel in the clear (G-07)", "sslmode=verify-full in the URL"},
		choice{!local && (plain || maybe), Warn, "whoever is between can make the connection fall back to plain text (G-07)", "sslmode=verify-full in the URL"},
		choice{!local && unproven, Warn, "encrypted for whoever says he is the server: nobody looks at its certificate (G-07)", "sslmode=verify-full in the URL"})
	n := d.poolOf(cfg)
	inTx, enough := transactionsOf(n), d.opt.Lanes+1
	for transactionsOf(enough) < d.opt.Lanes {
		enough++
	}
	r.choose("settings.pool", on, fmt.Sprintf("%d connections, of which %d for transactions, for %d lanes a partition", n, inTx, d.opt.Lanes),
		choice{n == 1, Bad, "one connection: a handler that reads beside its transaction waits for itself for ever (P-14, rule 26)", "pool_max_conns=4 or more in the URL"},
		choice{d.opt.Lanes > inTx, Warn,
			fmt.Sprintf("%d connections let %d transactions run at once, and one partition has %d lanes: the others wait (P-14, rule 25)", n, inTx, d.opt.Lanes),
			fmt.Sprintf("pool_max_conns=%d in the URL, or fewer lanes", enough)})
}

// transactionsOf is how many connections of a pool pgstore lends to transactions.
func transactionsOf(pool int) int { return max(1, pool-max(1, pool/4)) }

// poolOf is how many connections a worker may have.
func (d *examination) poolOf(cfg *pgxpool.Config) int {
	return cmp.Or(d.opt.PoolSize, int(cfg.MaxConns))
}

func (d *examination) checkRedisAccess(r *Findings, l *Store) {
	if redact.SplitsPassword(l.URL) {
		r.say(Bad, "settings.store.tls", "redis", "the URL cannot be parsed (not shown, it may hold a password)", "redis://user:password@host:6379/0")
		return
	}
	access := l.redisAccess()
	local, plain, on := access.local(), !access.secure, access.name()
	r.choose("settings.store.tls", on, localOr(local, "encrypted"),
		choice{!local && plain && access.password, Bad, "the password travels in the clear (G-07)", "rediss:// in the URL, and tls-port on the server"},
		choice{!local && plain, Warn, "events and results travel in the clear (G-07)", "rediss:// in the URL, and tls-port on the server"})
	r.say(Skipped, "settings.pool", on, "no transaction holds a connection", "")
}

func localOr(local bool, other string) string {
	if local {
		return "it is on this host"
	}
	return other
}

// isLocal reports whether a host is this one: a loopback address or a socket in the file system.
func isLocal(host string) bool {
	if host == "" || host == "localhost" || strings.HasPrefix(host, "/") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
