package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/examples/internal/pgschema"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

//go:embed schema.sql
var schema string

// newPool opens a pool for store, orders and outbox alike.
func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("-postgres cannot be parsed (not shown, it may hold a password)")
	}
	pgstore.Configure(cfg) // sessions of a worker that is gone end soon, and with them their transactions
	return pgxpool.NewWithConfig(ctx, cfg)
}

// handler has what the handler of payments needs beside its transaction.
type handler struct {
	worker  string // who it is, in the audit table
	auditOn bool
	emit    string // topic of order.paid; empty: none
	outbox  *pgoutbox.Outbox
}

// audit leaves a row for this run, should it be committed.
func (h handler) audit(ctx context.Context, tx pgx.Tx, p Payment) error {
	if !h.auditOn {
		return nil
	}
	_, err := tx.Exec(ctx, `INSERT INTO order_effects (order_id, payment_id, worker) VALUES ($1, $2, $3)`,
		p.OrderID, p.PaymentID, h.worker)
	return err
}

// migrate creates what is missing: the tables of the store, of the outbox and of the example. Several workers may do so
// at once.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return err
	}
	if err := pgoutbox.Migrate(ctx, pool); err != nil {
		return err
	}
	return pgschema.Apply(ctx, pool, "orderstatus", schema)
}

// seed adds the orders 1 to n that are not there, as pending, and returns how many that were.
func seed(ctx context.Context, pool *pgxpool.Pool, n int64) (int64, error) {
	tag, err := pool.Exec(ctx, `INSERT INTO orders (id) SELECT generate_series(1, $1::bigint) ON CONFLICT DO NOTHING`, n)
	return tag.RowsAffected(), err
}

// prepare does what -migrate and -seed ask for.
func (o options) prepare(ctx context.Context) error {
	if !o.migrate && o.seed == 0 {
		return nil
	}
	pool, err := pgxpool.New(ctx, o.postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	if o.migrate {
		if err := migrate(ctx, pool); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		o.log.InfoContext(ctx, "tables are there")
	}
	if o.seed > 0 {
		added, err := seed(ctx, pool, o.seed)
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		o.log.InfoContext(ctx, "orders are there", "orders", o.seed, "added", added)
	}
	return nil
}
