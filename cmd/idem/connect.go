package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/internal/redact"
)

// store is an open store.
type openedStore struct {
	name  string // without credentials
	store dedup.Store
	pool  *pgxpool.Pool         // or nil
	redis redis.UniversalClient // or nil

	pg      *pgstore.Store // or nil
	options []pgstore.Option
	layout  string // that the store is made for
	state   tables
}

// tables describes the tables of a store in Postgres.
type tables struct {
	layout  string // "" if the tables are missing or unknown
	schema  string
	version int
	err     error // why that is not known
}

var (
	_ dedup.Operator = (*pgstore.Store)(nil)
	_ dedup.Lister   = (*pgstore.Store)(nil)
	_ dedup.Deferrer = (*pgstore.Store)(nil)
	_ dedup.Operator = (*redisstore.Store)(nil)
)

// operator returns the store as a [dedup.Operator].
func (l *openedStore) operator() dedup.Operator { return l.store.(dedup.Operator) }

// shared returns the store for the packages that the ops page uses too.
func (l *openedStore) shared() deadletters.NamedStore {
	return deadletters.NamedStore{Name: l.name, Store: l.store}
}

func shared(ledgers []*openedStore) []deadletters.NamedStore {
	all := make([]deadletters.NamedStore, len(ledgers))
	for i, l := range ledgers {
		all[i] = l.shared()
	}
	return all
}

const (
	layoutReadable = "readable"
	layoutCompact  = "compact"
)

// connectTimeout limits one attempt to reach a server, unless the URL has another limit.
const connectTimeout = 10 * time.Second

// openStores connects to all stores that were named.
func (a *app) openStores(ctx context.Context) ([]*openedStore, error) {
	if len(a.stores) == 0 {
		return nil, usage("which store? give --store, a postgres:// or redis:// URL")
	}
	var all []*openedStore
	for _, url := range a.stores {
		l, err := a.openStore(ctx, url)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	a.opened = all
	return all, nil
}

// openStore makes a client. An unreachable server is an error of the first call.
func (a *app) openStore(ctx context.Context, text string) (*openedStore, error) {
	if l := a.known[text]; l != nil {
		return l, nil
	}
	a.secrets.AddURL(text)
	scheme, _, ok := strings.Cut(text, "://")
	switch {
	case !ok || strings.ContainsAny(scheme, ":@/?#"): // not shown, because the text may contain a password (G-04)
		return nil, usage(
			"--store: a URL such as postgres://user:password@host:5432/database or redis://host:6379/0",
		)
	case scheme == "postgres" || scheme == "postgresql":
		return a.openPostgres(ctx, text)
	case strings.HasPrefix(scheme, "redis"):
		return a.openRedis(scheme, text)
	}
	return nil, usage(
		"--store: a URL that begins with postgres:// or redis://, not with %q",
		scheme,
	)
}

// poolUse is the purpose of a pool.
type poolUse struct {
	name  string // application_name
	conns int32  // at least
}

// postgresPool makes a pool from a URL. No error shows the URL. An import reads while it writes.
func (a *app) postgresPool(ctx context.Context, flag, text string) (*pgxpool.Pool, error) {
	return a.postgresPoolFor(ctx, flag, text, poolUse{"idem-cli", 2})
}

func (a *app) postgresPoolFor(
	ctx context.Context, flag, text string, use poolUse,
) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil || redact.SplitsPassword(text) {
		return nil, usage(
			"%s: this URL cannot be parsed (it is not shown, it may hold a password): "+
				"postgres://user:password@host:5432/database, special characters in the password percent-encoded",
			flag,
		)
	}
	a.secrets.Add(cfg.ConnConfig.Password) // it may come from PGPASSWORD or a file
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, connectTimeout)
	cfg.MaxConns = max(use.conns, min(cfg.MaxConns, 4)) // more are for workers
	if params := cfg.ConnConfig.RuntimeParams; params["application_name"] == "" {
		params["application_name"] = use.name
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	a.closers = append(a.closers, pool.Close)
	return pool, nil
}

// schemaName matches the names that pgstore.InSchema accepts (G-05).
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

func (a *app) openPostgres(ctx context.Context, text string) (*openedStore, error) {
	pool, err := a.postgresPool(ctx, "--store", text)
	if err != nil {
		return nil, err
	}
	c := pool.Config().ConnConfig
	l := &openedStore{
		name: fmt.Sprintf("postgres %s:%d/%s", c.Host, c.Port, c.Database), pool: pool,
	}
	if a.schema != "" && !schemaName.MatchString(a.schema) {
		return nil, usage("--schema: %q does not match %s", a.schema, schemaName)
	}
	if a.schema != "" {
		l.options = append(l.options, pgstore.InSchema(a.schema))
		l.name += "/" + a.schema
	}
	l.state = findTables(ctx, pool, a.schema)
	l.use(cmp.Or(l.state.layout, layoutReadable))
	return l, nil
}

// use makes the store for a layout.
func (l *openedStore) use(layout string) {
	l.layout = layout
	l.pg = pgstore.New(l.pool, l.withLayout()...)
	l.store = l.pg
}

func (l *openedStore) withLayout() []pgstore.Option {
	if l.layout != layoutCompact {
		return l.options
	}
	return append(l.options[:len(l.options):len(l.options)], pgstore.Compact())
}

// findTables reads the layout of the tables, so that no flag is needed. If the tables are missing
// or the server cannot be reached, the first call reports that. With a wrong layout the store
// refuses to work.
func findTables(ctx context.Context, pool *pgxpool.Pool, schema string) tables {
	l, err := pgschema.FindTables(ctx, pool, schema)
	return tables{layout: l.Layout, schema: l.Schema, version: l.Version, err: err}
}

func (a *app) openRedis(scheme, text string) (*openedStore, error) {
	kind, _ := strings.CutPrefix(scheme[len("redis"):], "s")
	secure := strings.HasPrefix(scheme, "rediss")
	client, name, err := redisClient(kind, secure, text[len(scheme)+len("://"):])
	if err != nil ||
		redact.SplitsPassword(
			text,
		) { // the text may contain parts of the password, after a wrong '#' for example (G-04)
		return nil, usage(
			"--store: this URL cannot be parsed (it is not shown, it may hold a password): " +
				"redis://user:password@host:6379/0, redis+cluster://user:password@host:6379,host:6380 or " +
				"redis+sentinel://user:password@host:26379,host:26380/0?master_name=main (rediss for TLS), " +
				"special characters in the password percent-encoded; options as go-redis has them",
		)
	}
	a.closers = append(a.closers, func() { _ = client.Close() })
	store := redisstore.New(client, redisstore.Prefix(cmp.Or(a.redisPrefix, "idem:")))
	return &openedStore{name: name, redis: client, store: store}, nil
}

// redisClient makes a client from a URL without its scheme. Several hosts, separated by commas, are
// a cluster, unless the scheme has another meaning.
func redisClient(
	kind string, secure bool, rest string,
) (client redis.UniversalClient, name string, err error) {
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	at := strings.LastIndex(authority, "@") + 1
	hosts := strings.Split(authority[at:], ",")
	scheme := "redis://"
	if secure {
		scheme = "rediss://"
	}
	one := scheme + authority[:at] + hosts[0] + tail
	if kind == "" && len(hosts) == 1 {
		o, err := redis.ParseURL(one)
		if err != nil {
			return nil, "", err
		}
		hurry(&o.MaxRetries, &o.DialerRetries)
		return redis.NewClient(o), fmt.Sprintf("redis %s/%d", o.Addr, o.DB), nil
	}
	for i, host := range hosts[1:] {
		separator := "&"
		if i == 0 && !strings.Contains(one, "?") {
			separator = "?"
		}
		one += separator + "addr=" + url.QueryEscape(host)
	}
	switch kind {
	case "", "+cluster":
		o, err := redis.ParseClusterURL(one)
		if err != nil {
			return nil, "", err
		}
		hurry(&o.MaxRetries, &o.DialerRetries)
		return redis.NewClusterClient(o), "redis cluster " + strings.Join(o.Addrs, ","), nil
	case "+sentinel":
		o, err := redis.ParseFailoverURL(one)
		if err != nil {
			return nil, "", err
		}
		hurry(&o.MaxRetries, &o.DialerRetries)
		return redis.NewFailoverClient(o), fmt.Sprintf("redis %s/%d", o.MasterName, o.DB), nil
	}
	return nil, "", errors.New("no such kind of Redis")
}

// hurry limits the tries of a client to two, unless the URL has another number, because a person
// waits.
func hurry(retries, dials *int) {
	*retries, *dials = cmp.Or(*retries, 1), cmp.Or(*dials, 2)
}

// kafkaAccess is how brokers are reached, with the rules of consumers about secrets (G-07).
func (a *app) kafkaAccess(clientID string) (cfg consumer.Config, err error) {
	if len(a.brokers) == 0 {
		return cfg, usage("which Kafka? give --brokers")
	}
	cfg = consumer.Config{Brokers: a.brokers, ClientID: clientID, AllowInsecure: a.allowInsecure}
	if cfg.TLS, err = a.tlsConfig(); err != nil {
		return cfg, err
	}
	cfg.SASL, err = a.sasl()
	return cfg, err
}

// kafkaConfig is the setting of the connections to Kafka that a person's command makes.
func (a *app) kafkaConfig() (*sarama.Config, error) {
	cfg, err := a.kafkaAccess("idem-cli")
	if err != nil {
		return nil, err
	}
	cfg.Group, cfg.Topics = cmp.Or(a.group, "idem"), []string{"unused"}
	sc, err := consumer.DefaultSaramaConfig(cfg)
	if err != nil {
		return nil, usage("%v (of this command: --tls, --allow-insecure)", err)
	}
	sc.Metadata.Retry.Max = 3 // a person waits, no session has to be kept
	return sc, nil
}

func (a *app) tlsConfig() (*tls.Config, error) {
	if !a.tls && a.tlsCA == "" && a.tlsCert == "" && a.tlsKey == "" {
		return nil, nil //nolint:nilnil // no TLS
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.tlsCA != "" {
		pem, err := os.ReadFile(a.tlsCA)
		if err != nil {
			return nil, usage("--tls-ca: %w", err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--tls-ca: %s has no certificate in PEM form", a.tlsCA)
		}
	}
	if a.tlsCert == "" && a.tlsKey == "" {
		return cfg, nil
	}
	if a.tlsCert == "" || a.tlsKey == "" {
		return nil, usage("--tls-cert and --tls-key belong together")
	}
	pair, err := tls.LoadX509KeyPair(a.tlsCert, a.tlsKey)
	if err != nil {
		return nil, usage("--tls-cert, --tls-key: %w", err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return cfg, nil
}

func (a *app) sasl() (*consumer.SASL, error) {
	password := os.Getenv("IDEM_SASL_PASSWORD")
	switch {
	case a.saslMechanism == "":
		return nil, nil //nolint:nilnil // no SASL, whatever stands in the environment
	case a.saslUser == "":
		return nil, usage("--sasl-mechanism without a user: give --sasl-user")
	case password == "":
		return nil, usage(
			"no password for %q: set IDEM_SASL_PASSWORD (there is no flag for it, which every user of the host could see)",
			a.saslUser,
		)
	}
	a.secrets.Add(password)
	return &consumer.SASL{Mechanism: a.saslMechanism, User: a.saslUser, Password: password}, nil
}

// kafka connects to the brokers.
func (a *app) kafka() (sarama.Client, error) {
	cfg, err := a.kafkaConfig()
	if err != nil {
		return nil, err
	}
	client, err := sarama.NewClient(a.brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka %s: %w", strings.Join(a.brokers, ","), err)
	}
	a.closers = append(a.closers, func() { _ = client.Close() })
	return client, nil
}
