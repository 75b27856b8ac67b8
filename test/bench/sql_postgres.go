package main

import (
	"context"
	"errors"
	"net/url"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
)

// inPostgres makes a schema in the server of POSTGRES_URL, which is used through database/sql and
// the driver of pgx.
func inPostgres(ctx context.Context, l *lab) (*database, error) {
	cfg, err := pgx.ParseConfig(os.Getenv("POSTGRES_URL"))
	if err != nil {
		return nil, errors.New("POSTGRES_URL cannot be parsed")
	}
	params, err := url.ParseQuery(postgres.Parameters)
	if err != nil {
		return nil, err
	}
	for name := range params {
		cfg.RuntimeParams[name] = params.Get(name)
	}
	schema := l.schema() + "_sql"
	cfg.RuntimeParams["search_path"] = schema
	cfg.RuntimeParams["application_name"] = l.id
	if _, err := l.pool.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	d := &database{
		db: db, store: postgres.New(db), pay: payOrder,
		insert: "INSERT INTO naive_events (event_id) VALUES ($1) ON CONFLICT DO NOTHING",
		ready:  "VACUUM ANALYZE orders", // as the other rows on Postgres have it
		many:   func(orders []int64) (string, []any) { return payOrders, []any{orders} },
		close: func() {
			_ = db.Close()
			_, err := l.pool.Exec(context.WithoutCancel(ctx), "DROP SCHEMA "+schema+" CASCADE")
			if err != nil {
				logf("postgres: %v", err)
			}
		},
	}
	if err := pgstore.Migrate(ctx, l.pool, pgstore.InSchema(schema)); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}
