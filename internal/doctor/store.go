package doctor

import (
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/internal/redact"
)

// Kind is what a store is kept in.
type Kind string

const (
	// Postgres is PostgreSQL.
	Postgres Kind = "postgres"
	// Redis is a Redis, a cluster or a group that Sentinel watches.
	Redis Kind = "redis"
)

// KindOf is what a URL of a store is about, or empty.
func KindOf(url string) Kind {
	scheme, _, _ := strings.Cut(url, "://")
	switch {
	case scheme == "postgres", scheme == "postgresql":
		return Postgres
	case strings.HasPrefix(scheme, "redis"):
		return Redis
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

// config is how a worker connects to Postgres. Its error must not be shown: it quotes what may be a part of a password.
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

// redisAccess is how a worker connects to Redis.
type redisAccess struct {
	hosts            []string
	secure, password bool
}

func (a *redisAccess) name() string { return "redis " + strings.Join(a.hosts, ",") }

// local reports whether all hosts are this one.
func (a *redisAccess) local() bool {
	return !slices.ContainsFunc(a.hosts, func(h string) bool {
		host, _, err := net.SplitHostPort(h)
		if err != nil {
			host = h
		}
		return !isLocal(host)
	})
}

func (l *Store) redisAccess() redisAccess {
	switch c := l.Redis.(type) {
	case *redis.Client:
		o := c.Options()
		return redisAccess{[]string{o.Addr}, o.TLSConfig != nil, o.Password != "" || o.CredentialsProvider != nil ||
			o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil}
	case *redis.ClusterClient:
		o := c.Options()
		return redisAccess{o.Addrs, o.TLSConfig != nil, o.Password != "" || o.CredentialsProvider != nil ||
			o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil}
	}
	scheme, rest, _ := strings.Cut(l.URL, "://")
	authority, _, _ := strings.Cut(rest, "/")
	authority, _, _ = strings.Cut(authority, "?")
	at := strings.LastIndex(authority, "@")
	return redisAccess{
		hosts: strings.Split(authority[at+1:], ","), secure: strings.HasPrefix(scheme, "rediss"),
		password: at >= 0 && strings.Contains(authority[:at], ":"),
	}
}

// keepSecrets notes what a store's connections know and nobody may see.
func (d *examination) keepSecrets(l *Store) {
	d.secrets.AddURL(l.URL)
	if l.kind() == Postgres {
		if cfg, err := l.config(); err == nil {
			d.keepPostgres(&cfg.ConnConfig.Config)
		}
	}
	switch c := l.Redis.(type) {
	case *redis.Client:
		d.secrets.Add(c.Options().Password)
	case *redis.ClusterClient:
		d.secrets.Add(c.Options().Password)
	}
}

// keepPostgres notes the password that pgx found: it may come from PGPASSWORD or a file.
func (d *examination) keepPostgres(c *pgconn.Config) { d.secrets.Add(c.Password) }

// text is what somebody else has to say, without what must not be shown (G-04). Words of our own are not looked through: they
// have names, never passwords, and whose password is "postgres" would see it by what is missing.
func (d *examination) text(err error) string {
	text := d.secrets.Text(err.Error())
	if d.in.Redact != nil {
		text = d.in.Redact(text)
	}
	return text
}
