package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/redact"
)

// storeSchemes are the beginnings of URLs of stores, for errors.
const storeSchemes = "postgres://, mysql://, redis:// or sqlite:"

// openStores connects to all stores that were named.
func (a *app) openStores(ctx context.Context) ([]*openedStore, error) {
	if len(a.stores) == 0 {
		return nil, usage("no store: give --store, a URL that begins with %s", storeSchemes)
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
	inPostgres := func(l *openedStore) bool { return l.pg != nil }
	if a.given("schema") && !slices.ContainsFunc(all, inPostgres) {
		return nil, usage("--schema is for stores in Postgres")
	}
	inRedis := func(l *openedStore) bool { return l.redis != nil }
	if a.given("redis-prefix") && !slices.ContainsFunc(all, inRedis) {
		return nil, usage("--redis-prefix is for stores in Redis")
	}
	return all, nil
}

// openStore makes a client. An unreachable server is an error of the first call.
func (a *app) openStore(ctx context.Context, text string) (*openedStore, error) {
	if l := a.known[text]; l != nil {
		return l, nil
	}
	a.secrets.AddURL(text)
	if path, ok := sqlitePath(text); ok {
		return a.openSQLite(ctx, path)
	}
	scheme, _, ok := strings.Cut(text, "://")
	switch {
	// not shown, because the text may contain a password (G-04)
	case !ok || strings.ContainsAny(scheme, ":@/?#"):
		return nil, usage(
			"--store: a URL such as postgres://user:password@host:5432/database or " +
				"redis://host:6379/0",
		)
	case scheme == "postgres" || scheme == "postgresql":
		return a.openPostgres(ctx, text)
	case strings.HasPrefix(scheme, "redis"):
		return a.openRedis(scheme, text)
	case scheme == "mysql" || scheme == "mariadb":
		return a.openMySQL(text)
	}
	return nil, usage("--store: a URL that begins with %s, not with %q", storeSchemes, scheme)
}

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
	l.useLayout(cmp.Or(l.state.layout, layoutReadable))
	return l, nil
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
			"--store: this URL cannot be parsed (not shown, as a password may be in it): " +
				"redis://user:password@host:6379/0, " +
				"redis+cluster://user:password@host:6379,host:6380 or " +
				"redis+sentinel://user:password@host:26379,host:26380/0?master_name=main (rediss " +
				"for TLS), " +
				"special characters in the password percent-encoded; options as go-redis has them",
		)
	}
	a.closers = append(a.closers, func() { _ = client.Close() })
	store := redisstore.New(client, redisstore.Prefix(cmp.Or(a.redisPrefix, "idem:")))
	return &openedStore{name: name, redis: client, store: store}, nil
}
