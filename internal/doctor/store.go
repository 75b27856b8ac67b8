package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/redact"
)

// Store is one store to examine. Set one of Pool, Redis and URL.
type Store struct {
	// Pool is a worker's own pool. At most two connections are used at a time.
	Pool *pgxpool.Pool
	// Redis is a worker's own client: a redis.Client or a redis.ClusterClient.
	Redis redis.UniversalClient
	// URL is the address that a worker would open. No finding shows the URL.
	URL string
	// OpenRedis makes a client for a URL of Redis, and a name without credentials. The caller
	// closes the client. Required for such a URL, except with Offline.
	OpenRedis func(context.Context) (client redis.UniversalClient, name string, err error)
	// OpenSQL opens the store of a URL of kind [SQL]. Required for such a URL, except with Offline.
	OpenSQL func(context.Context) (store Checker, name string, err error)
}

// Checker is a store that checks its tables and settings.
type Checker interface {
	Check(ctx context.Context) (warnings []string, err error)
}

// Kind is the database of a store.
type Kind string

const (
	// Postgres is PostgreSQL.
	Postgres Kind = "postgres"
	// Redis is a Redis, a cluster, or a group that Sentinel watches.
	Redis Kind = "redis"
	// SQL is SQLite, MariaDB or MySQL.
	SQL Kind = "sql"
)

// KindOf returns the kind of a URL, or an empty string for any other URL.
func KindOf(url string) Kind {
	scheme, _, _ := strings.Cut(url, "://")
	switch {
	case scheme == "postgres", scheme == "postgresql":
		return Postgres
	case strings.HasPrefix(scheme, "redis"):
		return Redis
	case scheme == "mysql", scheme == "mariadb", strings.HasPrefix(url, "sqlite:"):
		return SQL
	}
	return ""
}

func (l *Store) kind() Kind {
	switch {
	case l.Pool != nil:
		return Postgres
	case l.Redis != nil:
		return Redis
	}
	return KindOf(l.URL)
}

// config returns the Postgres settings of a worker. The error must not be shown: it may quote a
// part of a password.
func (l *Store) config() (*pgxpool.Config, error) {
	switch {
	case l.Pool != nil:
		return l.Pool.Config(), nil
	case redact.SplitsPassword(l.URL):
		return nil, errSplit
	}
	return pgxpool.ParseConfig(l.URL)
}

var errSplit = errors.New("special characters in the password are not percent-encoded")

// addSecrets adds the passwords of a store, which no finding may show.
func (l *Store) addSecrets(s *redact.Secrets) {
	s.AddURL(l.URL)
	if l.kind() == Postgres {
		if cfg, err := l.config(); err == nil { // the password may come from PGPASSWORD or a file
			s.Add(cfg.ConnConfig.Password)
		}
	}
	switch c := l.Redis.(type) {
	case *redis.Client:
		s.Add(c.Options().Password)
	case *redis.ClusterClient:
		s.Add(c.Options().Password)
	}
}

// unnamed is the name of a database if its own name must not be shown.
const unnamed = "postgres"

// postgresName names a database, without credentials. A host or a name with an '@' may have a part
// of the password: the URL was parsed in an unexpected way.
func postgresName(c *pgconn.Config) string {
	if strings.Contains(c.Host+c.Database, "@") {
		return unnamed
	}
	return fmt.Sprintf("postgres %s:%d/%s", c.Host, c.Port, c.Database)
}

// redisAccess is the Redis address of a worker.
type redisAccess struct {
	hosts    []string
	tls      *tls.Config // nil: plain text
	password bool
}

func (a *redisAccess) name() string { return "redis " + strings.Join(a.hosts, ",") }

func (a *redisAccess) endpoints() (all []endpoint) {
	for _, h := range a.hosts {
		host, _, err := net.SplitHostPort(h)
		if err != nil {
			host = h
		}
		all = append(all, endpoint{host, a.tls})
	}
	return all
}

func (l *Store) redisAccess() redisAccess {
	switch c := l.Redis.(type) {
	case *redis.Client:
		o := c.Options()
		password := o.Password != "" || o.CredentialsProvider != nil ||
			o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
		return redisAccess{[]string{o.Addr}, o.TLSConfig, password}
	case *redis.ClusterClient:
		o := c.Options()
		password := o.Password != "" || o.CredentialsProvider != nil ||
			o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
		return redisAccess{o.Addrs, o.TLSConfig, password}
	}
	scheme, rest, _ := strings.Cut(l.URL, "://")
	rest, query, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(rest, "/")
	at := strings.LastIndex(authority, "@")
	q, err := url.ParseQuery(query)
	if err != nil {
		q = nil // go-redis refuses the URL
	}
	a := redisAccess{
		hosts:    strings.Split(authority[at+1:], ","),
		password: at >= 0 && strings.Contains(authority[:at], ":"),
	}
	for _, addr := range q["addr"] {
		a.hosts = append(a.hosts, addr[strings.LastIndex(addr, "@")+1:])
	}
	if strings.HasPrefix(scheme, "rediss") {
		skip := slices.Contains([]string{"1", "true"}, last(q, "skip_verify"))
		a.tls = &tls.Config{InsecureSkipVerify: skip} //nolint:gosec // judged, never used
	}
	return a
}

// isLocal reports whether a host is this host: a loopback address, or a socket in the file system.
func isLocal(host string) bool {
	if host == "" || host == "localhost" || strings.HasPrefix(host, "/") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
