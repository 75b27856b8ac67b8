package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/examples/internal/pgschema"
)

//go:embed schema.sql
var schema string

// Seeded accounts hold seedBalance: 1,000.00.
const (
	seedBalance = 100_000
	maxSeed     = 1_000_000
)

// poolSize is the maximum number of connections of a process. pool_max_conns in the URL overrides
// it.
const poolSize = 16

// openPool opens the database. All waits of a request are bounded, so that rows do not stay locked
// by a dead process or a lost host.
func openPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		cfg.MaxConns = poolSize
	}
	for name, value := range map[string]string{
		"application_name":                    "transfer",
		"lock_timeout":                        "5s",
		"statement_timeout":                   "10s",
		"idle_in_transaction_session_timeout": "10s",
	} {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	pgstore.Configure(cfg) // keep-alives, and the server checks whether its client is alive
	return pgxpool.NewWithConfig(ctx, cfg)
}

// migrate creates the missing tables. Several processes may run migrate at once.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgschema.Apply(ctx, pool, "transfer", schema)
}

// seed adds those of the accounts 1 to n that are missing, and returns the number of added ones. An
// account takes on the currency of its first transfer.
func seed(ctx context.Context, pool *pgxpool.Pool, n int64) (int64, error) {
	tag, err := pool.Exec(ctx, `INSERT INTO accounts (id, currency, opening, balance)
		SELECT id, NULL, $2, $2 FROM generate_series(1, $1::bigint) id ON CONFLICT DO NOTHING`,
		n, seedBalance)
	return tag.RowsAffected(), err
}

// identity is shared by all processes of one bank.
type identity struct {
	id     string
	secret []byte
}

func readIdentity(ctx context.Context, pool *pgxpool.Pool) (i identity, err error) {
	err = pool.QueryRow(ctx, `SELECT id::text, secret FROM bank`).Scan(&i.id, &i.secret)
	return i, err
}

// prepare creates the missing tables and accounts.
func (o options) prepare(ctx context.Context, pool *pgxpool.Pool) (identity, error) {
	if err := migrate(ctx, pool); err != nil {
		return identity{}, fmt.Errorf("migrate: %w", err)
	}
	if o.seed > 0 {
		added, err := seed(ctx, pool, o.seed)
		if err != nil {
			return identity{}, fmt.Errorf("seed: %w", err)
		}
		o.log.InfoContext(ctx, "accounts exist", "accounts", o.seed, "added", added)
	}
	return readIdentity(ctx, pool)
}
