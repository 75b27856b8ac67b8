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

// newPool opens the pool that store, orders and outbox share.
func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("-postgres cannot be parsed (not shown, it may hold a password)")
	}
	// the server ends the sessions of a dead worker soon, and their transactions with them
	pgstore.Configure(cfg)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// handler holds the dependencies of the handler of payments.
type handler struct {
	worker  string // name of the worker in the audit table
	auditOn bool
	emit    string // topic of order.paid; empty: order.paid is not emitted
	outbox  *pgoutbox.Outbox
}

// audit adds a row for this run in the transaction of the run.
func (h handler) audit(ctx context.Context, tx pgx.Tx, p Payment) error {
	if !h.auditOn {
		return nil
	}
	_, err := tx.Exec(ctx,
		`INSERT INTO order_effects (order_id, payment_id, worker) VALUES ($1, $2, $3)`,
		p.OrderID, p.PaymentID, h.worker)
	return err
}

// migrate creates the missing tables of the store, of the outbox and of the example. Several
// workers may run migrate at once.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return err
	}
	if err := pgoutbox.Migrate(ctx, pool); err != nil {
		return err
	}
	return pgschema.Apply(ctx, pool, "orderstatus", schema)
}

// seed adds those of the orders 1 to n that are missing, as pending, and returns the number of
// added orders.
func seed(ctx context.Context, pool *pgxpool.Pool, n int64) (int64, error) {
	tag, err := pool.Exec(ctx,
		`INSERT INTO orders (id) SELECT generate_series(1, $1::bigint) ON CONFLICT DO NOTHING`, n)
	return tag.RowsAffected(), err
}

// prepare does the work of -migrate and -seed.
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
		o.log.InfoContext(ctx, "tables exist")
	}
	if o.seed > 0 {
		added, err := seed(ctx, pool, o.seed)
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		o.log.InfoContext(ctx, "orders exist", "orders", o.seed, "added", added)
	}
	return nil
}
