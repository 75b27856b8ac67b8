package main

import (
	"context"
	_ "embed"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/examples/internal/pgschema"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

//go:embed postgres.sql
var postgresSchema string

// pgOrders are the orders in Postgres. Store, orders and outbox share the pool.
type pgOrders struct {
	pool *pgxpool.Pool
	box  *pgoutbox.Outbox
}

// openPostgres opens the database of -postgres.
func (o options) openPostgres(ctx context.Context, watch ...outbox.Observer) (*opened, error) {
	cfg, err := pgxpool.ParseConfig(o.postgres)
	if err != nil {
		return nil, errors.New("-postgres cannot be parsed (not shown, it may hold a password)")
	}
	// the server ends the sessions of a dead worker soon, and their transactions with them
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	store, db := pgstore.New(pool), pgOrders{pool, pgoutbox.New(pool, pgoutbox.Observers(watch...))}
	return &opened{
		tables: db, store: store, box: db.box, router: newRouter(o, db),
		reaper: pgstore.NewReaper(store, pgstore.ReaperConfig{Logger: o.log}),
	}, nil
}

func (d pgOrders) close() { d.pool.Close() }

// migrate creates the missing tables of the store, of the outbox and of the example.
func (d pgOrders) migrate(ctx context.Context) error {
	if err := pgstore.Migrate(ctx, d.pool); err != nil {
		return err
	}
	if err := pgoutbox.Migrate(ctx, d.pool); err != nil {
		return err
	}
	return pgschema.Apply(ctx, d.pool, "orderstatus", postgresSchema)
}

func (d pgOrders) seed(ctx context.Context, n int64) (int64, error) {
	tag, err := d.pool.Exec(ctx,
		`INSERT INTO orders (id) SELECT generate_series(1, $1::bigint) ON CONFLICT DO NOTHING`, n)
	return tag.RowsAffected(), err
}

func (pgOrders) pay(ctx context.Context, tx pgx.Tx, p Payment) (bool, error) {
	tag, err := tx.Exec(ctx, `
		UPDATE orders
		SET status = 'paid', paid_by = $2, amount = NULLIF($3, '')::numeric,
			currency = $4, paid_at = now()
		WHERE id = $1 AND status = 'pending'`, p.OrderID, p.PaymentID, string(p.Amount), p.Currency)
	return tag.RowsAffected() == 1, err
}

func (pgOrders) find(ctx context.Context, tx pgx.Tx, id orderID) (
	status, paidBy string, found bool, err error,
) {
	err = tx.QueryRow(ctx, `SELECT status, coalesce(paid_by, '') FROM orders WHERE id = $1`, id).
		Scan(&status, &paidBy)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", "", false, nil
	}
	return status, paidBy, true, err
}

func (pgOrders) audit(ctx context.Context, tx pgx.Tx, p Payment, worker string) error {
	_, err := tx.Exec(ctx,
		`INSERT INTO order_effects (order_id, payment_id, worker) VALUES ($1, $2, $3)`,
		p.OrderID, p.PaymentID, worker)
	return err
}

func (d pgOrders) emit(ctx context.Context, tx pgx.Tx, e outbox.Entry) error {
	return d.box.Add(ctx, tx, e)
}
