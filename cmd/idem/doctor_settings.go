package main

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
)

// checkFlags compares the settings with each other. It needs no network.
func (d *doctor) checkFlags(r *findings) {
	o := &d.opt
	d.checkConsumer(r)
	total := o.lease + inPlace + o.rebalance
	for _, delay := range o.retryDelays {
		total += delay
	}
	r.choose("settings.retention", "", fmt.Sprintf("%s, and lease, retries and a rebalance take %s", o.retention, total),
		choice{o.retention < total, vBad,
			fmt.Sprintf("retention %s is shorter than lease %s, retries and one rebalance together, %s: an event is forgotten while "+
				"it is being handled (rule 8)", o.retention, o.lease, total), fmt.Sprintf("idem.Retention of at least %s", total)})
	r.choose("settings.deadline", "", fmt.Sprintf("handlers take at most %s, grace %s, rebalances %s", o.timeout, o.grace, o.rebalance),
		choice{o.timeout > o.rebalance, vBad,
			fmt.Sprintf("a handler may take %s, but a rebalance waits %s only: whoever is slower is thrown out of the group, and its "+
				"partitions are handled twice (K-07)", o.timeout, o.rebalance), "idem.Timeout below the rebalance time-out, or a longer Consumer.Group.Rebalance.Timeout"},
		choice{o.timeout > o.grace, vWarn,
			fmt.Sprintf("a handler may take %s, but a stop or a rebalance lets it go on for %s only: each deployment cuts handlers short, "+
				"whose effect is then uncertain (rule 13)", o.timeout, o.grace), fmt.Sprintf("Config.Grace %s, and a rebalance time-out of half as much again", o.timeout)})
	r.choose("settings.lease", "", o.lease.String(),
		choice{o.lease < time.Second, vBad, "a lease below 1s is refused", "Config.Lease 30s"},
		choice{o.lease < 5*time.Second, vWarn,
			fmt.Sprintf("a pause of %s, by garbage collection or a busy host, loses claims while their handlers run (R-04)", o.lease), "Config.Lease 30s"},
		choice{o.lease > 5*time.Minute, vWarn,
			fmt.Sprintf("the event of a worker that died waits for %s, and its partition with it", o.lease), "Config.Lease 30s; leases of longer runs are renewed"})
	const heartbeat = 3 * time.Second
	r.choose("settings.session", "", o.session.String(),
		choice{o.session < 3*heartbeat, vWarn,
			fmt.Sprintf("a worker is thrown out of its group after %s, which is less than three heartbeats: its partitions move at every pause", o.session),
			"Consumer.Group.Session.Timeout 20s"})
	d.checkNames(r)
	d.checkURLs(r)
}

// inPlace is how long retries of one event may take in place by default.
const inPlace = 5 * time.Second

// checkConsumer asks the consumer itself what it thinks of the settings.
func (d *doctor) checkConsumer(r *findings) {
	o := &d.opt
	_, err := consumer.DefaultSaramaConfig(consumer.Config{
		Group: cmp.Or(d.group, "idem"), Topics: o.topics, Lease: o.lease, Grace: o.grace, Lanes: o.lanes,
		Sarama: func(sc *sarama.Config) {
			sc.Consumer.Group.Rebalance.Timeout = o.rebalance
			sc.Consumer.Group.Session.Timeout = o.session
		},
	})
	detail := "it does"
	if err != nil {
		detail = strings.ReplaceAll(err.Error(), "\n", "; ")
	} else if o.lanes > 256 {
		detail = fmt.Sprintf("Lanes is %d, not between 1 and 256", o.lanes)
		err = fmt.Errorf("lanes")
	}
	r.choose("settings.consumer", "", detail, choice{err != nil, vBad, detail, ""})
}

// legalTopic is what Kafka takes for the name of a topic.
var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func (d *doctor) checkNames(r *findings) {
	const id = "settings.dlq.name"
	if d.group == "" {
		r.say(vSkipped, id, "", "no --group, which is part of the names", "")
		return
	}
	topics := d.opt.topics
	if len(topics) == 0 {
		topics = []string{"topic"} // the shortest name that says something about the group's
	}
	for _, topic := range topics {
		letters := d.letters(topic)
		r.choose(id, letters, "a good name",
			choice{!legalTopic.MatchString(letters), vBad,
				fmt.Sprintf("Kafka takes letters, digits, '.', '_' and '-', at most 249 of them: no topic can have the name %q, and no letter can be sent", letters),
				"Config.DeadLetterTopic with names of your own"},
			choice{slices.Contains(d.opt.topics, letters), vBad, "it is consumed as well: its letters would go round (T-08)",
				"take it out of the consumed topics"})
	}
}

// letters is the dead-letter topic of a topic.
func (d *doctor) letters(topic string) string {
	return strings.NewReplacer("{topic}", topic, "{group}", d.group).Replace(d.opt.dlqTopic)
}

const (
	kindPostgres = "postgres"
	kindRedis    = "redis"
)

// ledgerKind is what a URL of --ledger is about, or "".
func ledgerKind(u string) string {
	scheme, _, _ := strings.Cut(u, "://")
	switch {
	case scheme == "postgres", scheme == "postgresql":
		return kindPostgres
	case strings.HasPrefix(scheme, "redis"):
		return kindRedis
	}
	return ""
}

func (d *doctor) checkURLs(r *findings) {
	if len(d.ledgers) == 0 {
		for _, id := range []string{"settings.ledger.volatile", "settings.ledger.tls", "settings.pool"} {
			r.say(vSkipped, id, "", "no --ledger", "")
		}
		return
	}
	for _, u := range d.ledgers {
		kind := ledgerKind(u)
		scheme, _, isURL := strings.Cut(u, "://")
		memory := strings.HasPrefix(scheme, "mem")
		on := kind
		if isURL || memory {
			on = cmp.Or(kind, fmt.Sprintf("%.20s", scheme))
		}
		r.choose("settings.ledger.volatile", on, "it does",
			choice{kind == "" && memory, vBad,
				"a ledger in memory forgets everything with its process, while the offsets stay committed (rule 31)",
				"pgstore or redisstore; memstore is for tests"},
			choice{kind == "", vBad, "only URLs of postgres:// and redis:// are known (this one is not shown, it may hold a password)", ""})
		switch kind {
		case kindPostgres:
			d.checkPostgresURL(r, u)
		case kindRedis:
			d.checkRedisURL(r, u)
		}
	}
}

func (d *doctor) checkPostgresURL(r *findings, u string) {
	cfg, err := pgxpool.ParseConfig(u)
	if err != nil {
		r.say(vBad, "settings.ledger.tls", "postgres", "the URL cannot be parsed (not shown, it may hold a password)", "postgres://user:password@host:5432/database")
		return
	}
	c := cfg.ConnConfig
	on := postgresName(&c.Config)
	plain := c.TLSConfig == nil
	maybe := slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
	unproven := c.TLSConfig != nil && c.TLSConfig.InsecureSkipVerify && c.TLSConfig.VerifyPeerCertificate == nil
	local := isLocal(c.Host)
	r.choose("settings.ledger.tls", on, localOr(local, "encrypted, and the server proves who it is"),
		choice{!local && plain && !maybe, vWarn, "events and results travel in the clear (G-07)", "sslmode=verify-full in the URL"},
		choice{!local && (plain || maybe), vWarn, "whoever is between can make the connection fall back to plain text (G-07)", "sslmode=verify-full in the URL"},
		choice{!local && unproven, vWarn, "encrypted for whoever says he is the server: nobody looks at its certificate (G-07)", "sslmode=verify-full in the URL"})
	n := d.poolOf(cfg)
	inTx, enough := transactionsOf(n), d.opt.lanes+1
	for transactionsOf(enough) < d.opt.lanes {
		enough++
	}
	r.choose("settings.pool", on, fmt.Sprintf("%d connections, of which %d for transactions, for %d lanes a partition", n, inTx, d.opt.lanes),
		choice{n == 1, vBad, "one connection: a handler that reads beside its transaction waits for itself for ever (P-14, rule 26)", "pool_max_conns=4 or more in the URL"},
		choice{d.opt.lanes > inTx, vWarn,
			fmt.Sprintf("%d connections let %d transactions run at once, and one partition has %d lanes: the others wait (P-14, rule 25)", n, inTx, d.opt.lanes),
			fmt.Sprintf("pool_max_conns=%d in the URL, or fewer lanes", enough)})
}

// transactionsOf is how many connections of a pool pgstore lends to transactions.
func transactionsOf(pool int) int { return max(1, pool-max(1, pool/4)) }

// poolOf is how many connections a worker may have.
func (d *doctor) poolOf(cfg *pgxpool.Config) int { return cmp.Or(d.opt.poolSize, int(cfg.MaxConns)) }

func (d *doctor) checkRedisURL(r *findings, text string) {
	scheme, rest, _ := strings.Cut(text, "://")
	authority, _, _ := strings.Cut(rest, "/")
	authority, _, _ = strings.Cut(authority, "?")
	at := strings.LastIndex(authority, "@")
	password := at >= 0 && strings.Contains(authority[:at], ":")
	hosts := strings.Split(authority[at+1:], ",")
	local := !slices.ContainsFunc(hosts, func(h string) bool {
		host, _, err := net.SplitHostPort(h)
		if err != nil {
			host = h
		}
		return !isLocal(host)
	})
	plain := !strings.HasPrefix(scheme, "rediss")
	on := "redis " + authority[at+1:]
	r.choose("settings.ledger.tls", on, localOr(local, "encrypted"),
		choice{!local && plain && password, vBad, "the password travels in the clear (G-07)", "rediss:// in the URL, and tls-port on the server"},
		choice{!local && plain, vWarn, "events and results travel in the clear (G-07)", "rediss:// in the URL, and tls-port on the server"})
	r.say(vSkipped, "settings.pool", on, "no transaction holds a connection", "")
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
