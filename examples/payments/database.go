package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/examples/internal/pgschema"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

//go:embed schema.sql
var schema string

// newPool opens a pool with at most that many connections.
func newPool(ctx context.Context, url string, connections int) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errors.New("-postgres cannot be parsed (not shown, it may hold a password)")
	}
	cfg.MaxConns = int32(connections)
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	// the server ends the sessions of a dead process soon, and their transactions with them
	pgstore.Configure(cfg)
	return pgxpool.NewWithConfig(ctx, cfg)
}

// migrate creates the missing tables of the store, of the outbox and of the example. Several
// processes may run migrate at once.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := pgoutbox.Migrate(ctx, pool); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if err := pgschema.Apply(ctx, pool, "payments", schema); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// insert adds a payment, or returns the earlier payment of the same request. A transaction that is
// adding a payment of the same request or order delays insert.
func insert(ctx context.Context, tx pgx.Tx, p payment) (earlier *payment, err error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO payments (id, account, idempotency_key, order_id, customer_id, amount, currency)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
		p.ID, p.Account, p.Key, p.OrderID, p.CustomerID, p.Amount, p.Currency)
	if err != nil || tag.RowsAffected() == 1 {
		return nil, err
	}
	found := payment{Account: p.Account, Key: p.Key}
	err = tx.QueryRow(ctx, `
		SELECT id, order_id, customer_id, amount, currency, charge_id FROM payments
		WHERE account = $1 AND idempotency_key = $2`, p.Account, p.Key).
		Scan(&found.ID, &found.OrderID, &found.CustomerID, &found.Amount, &found.Currency,
			&found.ChargeID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, errOrderPaid // the only other constraint
	case err != nil:
		return nil, err
	case !found.sameWish(&p):
		return nil, errOtherPayment
	}
	return &found, nil
}

func setCharge(ctx context.Context, tx pgx.Tx, p payment) error {
	_, err := tx.Exec(ctx, `UPDATE payments SET charge_id = $2 WHERE id = $1`, p.ID, p.ChargeID)
	return err
}

// reader answers requests that only read. The pool is separate from the one of payments, which may
// all wait for the provider.
type reader struct{ pool *pgxpool.Pool }

const listed = 20

// list handles GET /payments: the number of payments of the account, and the newest ones.
func (s reader) list(w http.ResponseWriter, r *http.Request) {
	answer := struct {
		Count    int64     `json:"count"`
		Payments []payment `json:"payments"`
	}{Payments: []payment{}}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	err := s.pool.QueryRow(ctx, `SELECT count(*) FROM payments WHERE account = $1`,
		accountOf(r)).Scan(&answer.Count)
	if err == nil {
		var rows pgx.Rows
		rows, _ = s.pool.Query(ctx, `
			SELECT id, order_id, customer_id, amount, currency, charge_id FROM payments
			WHERE account = $1 ORDER BY created_at DESC, id LIMIT $2`, accountOf(r), listed)
		scan := func(row pgx.CollectableRow) (p payment, err error) {
			err = row.Scan(&p.ID, &p.OrderID, &p.CustomerID, &p.Amount, &p.Currency, &p.ChargeID)
			return p, err
		}
		answer.Payments, err = pgx.AppendRows(answer.Payments, rows, scan)
	}
	if err != nil {
		problem(w, http.StatusServiceUnavailable, "database_unavailable",
			"The database is unavailable.")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// health handles GET /healthz: whether the database answers.
func (s reader) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.pool.Ping(ctx); err != nil {
		problem(w, http.StatusServiceUnavailable, "database_unavailable",
			"The database is unavailable.")
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
