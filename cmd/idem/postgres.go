package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/redact"
)

// connectTimeout limits one attempt to reach a server, unless the URL has another limit.
const connectTimeout = 10 * time.Second

// poolUse is the purpose of a pool.
type poolUse struct {
	name  string // application_name
	conns int32  // at least
}

// postgresPool makes a pool from a URL. No error shows the URL. An import reads while it writes.
func (a *app) postgresPool(ctx context.Context, flag, text string) (*pgxpool.Pool, error) {
	return a.postgresPoolFor(ctx, flag, text, cmp.Or(a.pools, poolUse{"idem-cli", 2}))
}

func (a *app) postgresPoolFor(
	ctx context.Context, flag, text string, use poolUse,
) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil || redact.SplitsPassword(text) {
		return nil, usage(
			"%s: this URL cannot be parsed (not shown, as a password may be in it): "+
				"postgres://user:password@host:5432/database, special characters in the password "+
				"percent-encoded",
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

// postgresName names a database, without credentials.
func postgresName(c *pgconn.Config) string {
	return fmt.Sprintf("postgres %s:%d/%s", c.Host, c.Port, c.Database)
}
