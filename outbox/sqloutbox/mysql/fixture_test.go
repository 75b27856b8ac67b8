package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// newDB returns a database of its own with the tables. parameters are those of the DSN.
func newDB(t testing.TB, parameters ...string) *sql.DB {
	t.Helper()
	dsn := testenv.MariaDB(t)
	if len(parameters) > 0 {
		dsn += "?" + strings.Join(parameters, "&")
	}
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, mysql.Migrate(t.Context(), db))
	return db
}

// newSite returns an outbox with writers that use transactions of an isolation level.
func newSite(t testing.TB, level sql.IsolationLevel, parameters ...string) outboxtest.Site[*sql.Tx] {
	t.Helper()
	db := newDB(t, parameters...)
	box := mysql.New(db)
	return outboxtest.Site[*sql.Tx]{
		Outbox: box,
		Begin: func(ctx context.Context) (*sql.Tx, error) {
			return db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		},
		Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		Add:      box.Add,
		Savepoint: func(ctx context.Context, tx *sql.Tx) (
			inner *sql.Tx, undo, keep func(context.Context) error, err error) {
			exec := func(text string) func(context.Context) error {
				return func(ctx context.Context) error {
					_, err := tx.ExecContext(ctx, text)
					return err
				}
			}
			return tx, exec("ROLLBACK TO SAVEPOINT here"), exec("RELEASE SAVEPOINT here"),
				exec("SAVEPOINT here")(ctx)
		},
		States: func(ctx context.Context) (map[string]int, error) { return states(ctx, db) },
		ExpireShards: func(ctx context.Context, shards []int) error {
			where := ""
			if shards != nil {
				list := strings.Trim(strings.ReplaceAll(fmt.Sprint(shards), " ", ", "), "[]")
				where = " WHERE shard IN (" + list + ")"
			}
			return exec(ctx, db, "UPDATE idem_outbox_shards FORCE INDEX (PRIMARY) "+
				"SET lease_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND"+where)
		},
		ExpireRelays: func(ctx context.Context) error {
			return exec(ctx, db, "UPDATE idem_outbox_relays "+
				"SET alive_until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
		},
		LoseRow: func(ctx context.Context, seq int64) error {
			if err := exec(ctx, db, fmt.Sprint("DELETE FROM idem_outbox WHERE seq = ", seq)); err != nil {
				return err
			}
			return exec(ctx, db, fmt.Sprint("ALTER TABLE idem_outbox AUTO_INCREMENT = ", seq))
		},
		LockShard: func(ctx context.Context, shard int) (func() error, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, err
			}
			var n int
			err = tx.QueryRowContext(ctx, "SELECT shard FROM idem_outbox_shards WHERE shard = ? "+
				"FOR UPDATE", shard).Scan(&n)
			return tx.Rollback, err
		},
	}
}

func exec(ctx context.Context, db *sql.DB, text string) error {
	_, err := db.ExecContext(ctx, text)
	return err
}

func states(ctx context.Context, db *sql.DB) (all map[string]int, err error) {
	rows, err := db.QueryContext(ctx, "SELECT event_id, state FROM idem_outbox")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close(), rows.Err()) }()
	all = map[string]int{}
	for rows.Next() {
		var id string
		var state int
		if err := rows.Scan(&id, &state); err != nil {
			return nil, err
		}
		all[id] = state
	}
	return all, nil
}

func entry(key, id string) outbox.Entry {
	return outbox.Entry{Topic: "orders", Key: key, Type: "order.paid", ID: id, Payload: []byte(id)}
}
