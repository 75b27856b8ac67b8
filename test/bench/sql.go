package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	idemmysql "github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

// The rows on database/sql, with the same effects as those on Postgres.

const (
	sqlPayOrder = "UPDATE orders SET status = 'paid', paid = paid + 1 WHERE id = ?"
	sqlTables   = `CREATE TABLE orders (id bigint PRIMARY KEY, status varchar(10) NOT NULL DEFAULT 'pending', paid integer NOT NULL DEFAULT 0);
CREATE TABLE naive_events (event_id varchar(255) PRIMARY KEY, created_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP)`
)

// database is one on database/sql, new for each run.
type database struct {
	db     *sql.DB // of the handlers
	store  dedup.Store
	insert string // an event ID, without effect if it exists
	pay    string // an order
	ready  string // a statement after the orders are written; may be empty
	many   func(orders []int64) (text string, args []any)
	close  func()
}

// engine opens the database of a run.
type engine func(ctx context.Context, l *lab) (*database, error)

// inMariaDB makes a database in the server of IDEM_MARIADB_DSN. Statements take one round trip, for
// everyone.
func inMariaDB(ctx context.Context, l *lab) (*database, error) {
	cfg, err := mariaDB()
	if err != nil {
		return nil, err
	}
	cfg.InterpolateParams, cfg.MultiStatements = true, true
	admin, err := openMariaDB(cfg)
	if err != nil {
		return nil, err
	}
	name := l.schema()
	remove := func() {
		if _, err := admin.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+name); err != nil {
			logf("mariadb: %v", err)
		}
		_ = admin.Close()
	}
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, errors.Join(err, admin.Close())
	}
	cfg.DBName, cfg.MultiStatements = name, false
	db, err := openMariaDB(cfg)
	if err != nil {
		remove()
		return nil, err
	}
	d := &database{
		db: db, store: idemmysql.New(db), insert: "INSERT INTO naive_events (event_id) VALUES (?) ON DUPLICATE KEY UPDATE event_id = event_id",
		pay: sqlPayOrder, many: payIn,
		close: func() {
			_ = db.Close()
			remove()
		},
	}
	if err := idemmysql.Migrate(ctx, db); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// mariaDB returns the configuration of the server.
func mariaDB() (*mysql.Config, error) {
	dsn := os.Getenv("IDEM_MARIADB_DSN")
	if dsn == "" {
		return nil, errors.New("IDEM_MARIADB_DSN is not set: run it by `make bench`, or by test/services/services.sh run")
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("IDEM_MARIADB_DSN cannot be parsed")
	}
	return cfg, nil
}

func openMariaDB(cfg *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(cfg.Clone())
	if err != nil {
		return nil, fmt.Errorf("mariadb: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// inSQLite makes a file. One connection writes, as that of the store does.
func inSQLite(ctx context.Context, _ *lab) (*database, error) {
	dir, err := os.MkdirTemp("", "idem-bench-")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	path := filepath.Join(dir, "bench.db")
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		remove()
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		_ = store.Close()
		remove()
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &database{
		db: db, store: store, insert: "INSERT INTO naive_events (event_id) VALUES (?) ON CONFLICT DO NOTHING",
		pay: sqlPayOrder, many: payIn,
		close: func() {
			_ = db.Close()
			_ = store.Close()
			remove()
		},
	}, nil
}

// openDatabase gives the run its database with orders that wait to be paid.
func (x *run) openDatabase(ctx context.Context, orders int) (err error) {
	if x.sql, err = x.row.sql(ctx, x.lab); err != nil {
		return err
	}
	for text := range strings.SplitSeq(sqlTables, ";\n") {
		if _, err := x.sql.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	ids := make([]int, orders)
	for i := range ids {
		ids[i] = i + 1
	}
	for some := range slices.Chunk(ids, 1000) {
		text := "INSERT INTO orders (id) VALUES (" + strings.Trim(strings.ReplaceAll(fmt.Sprint(some), " ", "), ("), "[]") + ")"
		if _, err := x.sql.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	if x.sql.ready == "" {
		return nil
	}
	_, err = x.sql.db.ExecContext(ctx, x.sql.ready)
	return err
}

// payIn pays orders with one placeholder for each.
func payIn(orders []int64) (text string, args []any) {
	for _, id := range orders {
		args = append(args, id)
	}
	return "UPDATE orders SET status = 'paid', paid = paid + 1 WHERE id IN (?" +
		strings.Repeat(", ?", len(orders)-1) + ")", args
}

// paid counts the orders, and those that were paid once.
func (x *run) paid(ctx context.Context) (once, other int, err error) {
	if x.sql == nil {
		return x.lab.paid(ctx)
	}
	err = x.sql.db.QueryRowContext(ctx, "SELECT count(CASE WHEN paid = 1 THEN 1 END), count(CASE WHEN paid > 1 THEN 1 END) FROM orders").Scan(&once, &other)
	return once, other, err
}

// naiveSQL inserts the event ID and makes the change in one transaction.
func naiveSQL(ctx context.Context, x *run) error {
	return consumeSarama(ctx, x, func(ctx context.Context, value []byte) error {
		x.meter.begin()
		var p payment
		if err := json.Unmarshal(value, &p); err != nil {
			return err
		}
		tx, err := x.sql.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // no effect after a commit
		result, err := tx.ExecContext(ctx, x.sql.insert, p.EventID)
		if err != nil {
			return err
		}
		fresh, err := result.RowsAffected()
		if err != nil {
			return err
		}
		if fresh > 0 {
			if _, err := tx.ExecContext(ctx, x.sql.pay, p.OrderID); err != nil {
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		if fresh > 0 {
			x.meter.effect(p.Seq)
		}
		return nil
	})
}

func idemOnTxSQL(ctx context.Context, x *run) error {
	r := idem.NewRouter(x.row.options...)
	idem.OnTx(r, eventType, func(ctx context.Context, tx *sql.Tx, e idem.Event[payment]) error {
		x.meter.begin()
		if _, err := tx.ExecContext(ctx, x.sql.pay, e.Data.OrderID); err != nil {
			return err
		}
		x.meter.effect(e.Data.Seq) // of the run; the tables have the committed effects
		return nil
	})
	return consumeIdem(ctx, x, x.sql.store, r)
}

func idemOnBatchTxSQL(ctx context.Context, x *run) error {
	r := idem.NewRouter(x.row.options...)
	idem.OnBatchTx(r, eventType, func(ctx context.Context, tx *sql.Tx, events []idem.Event[payment]) error {
		x.meter.begin()
		x.meter.calls.Add(1)
		orders := make([]int64, len(events))
		for i := range events {
			orders[i] = events[i].Data.OrderID
		}
		text, args := x.sql.many(orders)
		if _, err := tx.ExecContext(ctx, text, args...); err != nil {
			return err
		}
		for i := range events {
			x.meter.effect(events[i].Data.Seq)
		}
		return nil
	})
	return consumeIdem(ctx, x, x.sql.store, r)
}

// sqlRows pay orders in MariaDB, in SQLite, and in Postgres on database/sql.
func sqlRows(n sizes) []row {
	var rows []row
	for _, in := range []struct {
		name string
		open engine
	}{{"mariadb", inMariaDB}, {"sqlite", inSQLite}, {"sql-postgres", inPostgres}} {
		for _, r := range []row{
			{name: "naive-", about: "one transaction an event, sarama", spec: spec{deliveries: n.slow}, consume: naiveSQL},
			{name: "idem-ontx-", about: "OnTx, a statement an event", spec: spec{deliveries: n.medium}, consume: idemOnTxSQL},
			{name: "idem-onbatchtx-", about: "OnBatchTx, one UPDATE a batch", spec: spec{deliveries: n.medium}, consume: idemOnBatchTxSQL},
		} {
			r.name, r.about = r.name+in.name, r.about+", "+in.name
			r.spec.partitions, r.spec.seed, r.sql, r.check = 6, 1, in.open, inOrders
			rows = append(rows, r)
		}
	}
	return rows
}
