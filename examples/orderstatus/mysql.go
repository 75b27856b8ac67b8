package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/outbox"
)

//go:embed mysql.sql
var mysqlSchema string

// mySQLConns bounds the pool. The store leaves a quarter of the pool to claims without a handler.
const mySQLConns = 12

// mySQLOrders are the orders in MariaDB or MySQL. Store and orders share the pool.
type mySQLOrders struct{ db *sql.DB }

// openMySQL opens the database of -mysql.
func (o options) openMySQL() (*opened, error) {
	cfg, err := driver.ParseDSN(o.mysql)
	if err != nil {
		return nil, errors.New("-mysql cannot be parsed (not shown, it may hold a password)")
	}
	// Otherwise each statement with arguments takes three round trips: prepare, execute, close.
	cfg.InterpolateParams = true
	cfg.Logger = mySQLLog{o.log}
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Second // for a connection to a server that does not answer
	}
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		return nil, errors.New("-mysql has a setting that cannot be used")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(mySQLConns)
	db.SetMaxIdleConns(mySQLConns)
	store, orders := mysql.New(db), mySQLOrders{db}
	return &opened{
		tables: orders, store: store, router: newRouter(o, orders),
		reaper: sqlstore.NewReaper(store, sqlstore.ReaperConfig{Logger: o.log}),
	}, nil
}

// mySQLLog logs the messages of the driver, one for every lost connection, at level debug. The
// consumer logs an outage of the store once.
type mySQLLog struct{ log *slog.Logger }

// Print implements [driver.Logger].
func (l mySQLLog) Print(v ...any) { l.log.Debug(fmt.Sprint(v...)) }

func (d mySQLOrders) close() { _ = d.db.Close() }

// migrate creates the missing tables of the store and of the example.
func (d mySQLOrders) migrate(ctx context.Context) error {
	if err := mysql.Migrate(ctx, d.db); err != nil {
		return err
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(mysqlSchema), ";\n") {
		if _, err := d.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// seedRows bounds the rows of one statement.
const seedRows = 1000

func (d mySQLOrders) seed(ctx context.Context, n int64) (added int64, err error) {
	for first := int64(1); first <= n; first += seedRows {
		var ids []any
		for id := first; id <= min(n, first+seedRows-1); id++ {
			ids = append(ids, id)
		}
		result, err := d.db.ExecContext(ctx, `INSERT INTO orders (id) VALUES (?)`+
			strings.Repeat(`, (?)`, len(ids)-1)+` ON DUPLICATE KEY UPDATE id = id`, ids...)
		if err != nil {
			return added, err
		}
		rows, err := result.RowsAffected() // a row that exists and stays as it is counts as 0
		if err != nil {
			return added, err
		}
		added += rows
	}
	return added, nil
}

func (mySQLOrders) pay(ctx context.Context, tx *sql.Tx, p Payment) (bool, error) {
	result, err := tx.ExecContext(ctx, `
		UPDATE orders
		SET status = 'paid', paid_by = ?, amount = NULLIF(?, ''), currency = ?,
			paid_at = UTC_TIMESTAMP(6)
		WHERE id = ? AND status = 'pending'`, p.PaymentID, string(p.Amount), p.Currency, p.OrderID)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

func (mySQLOrders) find(ctx context.Context, tx *sql.Tx, id orderID) (
	status, paidBy string, found bool, err error,
) {
	err = tx.QueryRowContext(ctx, `SELECT status, coalesce(paid_by, '') FROM orders WHERE id = ?`, id).
		Scan(&status, &paidBy)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", false, nil
	}
	return status, paidBy, true, err
}

func (mySQLOrders) audit(ctx context.Context, tx *sql.Tx, p Payment, worker string) error {
	_, err := tx.ExecContext(ctx,
		`INSERT INTO order_effects (order_id, payment_id, worker) VALUES (?, ?, ?)`,
		p.OrderID, p.PaymentID, worker)
	return err
}

// emit is never called: -emit is refused with -mysql.
func (mySQLOrders) emit(context.Context, *sql.Tx, outbox.Entry) error { return errOutbox }
