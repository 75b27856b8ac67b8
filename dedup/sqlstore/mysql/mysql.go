// Package mysql makes a sqlstore for MariaDB 10.6 and later and for MySQL 8, with the driver
// github.com/go-sql-driver/mysql. The tables are InnoDB.
//
// Transactions are READ COMMITTED. At REPEATABLE READ, a locking read of a missing key locks the
// gap around it, and two consumers that then insert neighbours deadlock.
//
// Rows stay until a [sqlstore.Reaper] deletes them: run one in every instance.
package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	my "github.com/go-sql-driver/mysql"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/setup"
)

//go:embed schema.sql
var schemaSQL string

// New returns a store for the tables in the database of db. The caller closes db. [Migrate] makes
// the tables. The settings of the connection string do not matter: the store needs neither
// parseTime nor a time zone.
func New(db *sql.DB) *sqlstore.Store { return sqlstore.New(db, nil, dialect()) }

// Schema returns the SQL text that creates the tables, for a migration tool of your own. You may
// run the text again.
func Schema() string { return schemaSQL }

// Migrate creates the tables that are missing. You may call Migrate at each start, from several
// instances at once. A [*dedup.SetupError] means that the database has a table of another program
// with the name of one of these. Migrate has then not changed the database.
func Migrate(ctx context.Context, db *sql.DB) error {
	const names = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
	err := setup.RefuseForeign(ctx, db, names, schemaSQL,
		"choose another database for them, or rename that table")
	if err != nil {
		return fmt.Errorf("mysql: migrate: %w", err)
	}
	for statement := range strings.SplitSeq(schemaSQL, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("mysql: migrate: %w", err)
		}
	}
	return nil
}

func dialect() *sqlstore.Dialect {
	return &sqlstore.Dialect{
		Name: "mysql", Tables: "mysql.Migrate",
		Param: func(int) string { return "?" },
		Now:   "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
		Micros: func(c string) string {
			return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + c + ")"
		},
		Time:  func(t time.Time) any { return t.UTC().Format("2006-01-02 15:04:05.000000") },
		Token: func(c string) string { return c },
		Quote: "`",
		Lock:  " FOR UPDATE", LockFree: " FOR UPDATE SKIP LOCKED",
		Index: func(name string) string { return " FORCE INDEX (" + name + ")" },
		// A small table is scanned otherwise, and the scan waits for every locked row.
		ByKey: " FORCE INDEX (PRIMARY)", JoinedDelete: true,
		Replace: func(_, columns []string) string {
			sets := make([]string, len(columns))
			for i, c := range columns {
				sets[i] = c + " = VALUES(" + c + ")"
			}
			return " ON DUPLICATE KEY UPDATE " + strings.Join(sets, ", ")
		},
		Isolation: sql.LevelReadCommitted,
		Begin:     begin, Mark: mark, Check: check, Classify: classify, Ends: ends,
		EndBySQL: true, // the driver waits for the answer without a context
	}
}

// begin sets the time-out of locks, in whole seconds. The least value is 0 in MariaDB, and 1 in
// MySQL. The time-out for idle sessions stays that of the session: wait_timeout cannot end with the
// transaction.
func begin(ctx context.Context, q sqlstore.Querier, wait, _ time.Duration) (
	func(context.Context) error, error) {
	var old int64
	if err := scan(ctx, q, "SELECT @@SESSION.innodb_lock_wait_timeout", &old); err != nil {
		return nil, err
	}
	set := func(ctx context.Context, seconds int64) error {
		_, err := q.ExecContext(ctx,
			fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", seconds))
		return err
	}
	if err := set(ctx, int64(wait/time.Second)); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return set(ctx, old) }, nil
}

// mark sets a savepoint. The end of the transaction removes the savepoint, be it by COMMIT, by a
// statement that commits implicitly, or by a deadlock.
func mark(ctx context.Context, q sqlstore.Querier) (func(context.Context) error, error) {
	if _, err := q.ExecContext(ctx, "SAVEPOINT idem_run"); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := q.ExecContext(ctx, "RELEASE SAVEPOINT idem_run")
		return err
	}, nil
}

func check(ctx context.Context, q sqlstore.Querier) (warnings []string, err error) {
	var flush, rollsBack int
	err = scan(ctx, q, "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, "+
		"@@GLOBAL.innodb_rollback_on_timeout", &flush, &rollsBack)
	if err != nil {
		return nil, err
	}
	return judge(flush, rollsBack)
}

// judge judges the settings of the server.
func judge(flush, rollsBack int) (warnings []string, err error) {
	if rollsBack != 0 {
		return nil, errors.New("innodb_rollback_on_timeout is ON: a handler that goes on after a " +
			"time-out of a lock would commit effects without a record: start the server with " +
			"innodb_rollback_on_timeout=OFF, the default")
	}
	if flush != 1 {
		warnings = append(warnings, "innodb_flush_log_at_trx_commit is not 1: a crash of the server "+
			"loses the last commits, effects and records, while the offsets stay")
	}
	return warnings, nil
}

func scan(ctx context.Context, q sqlstore.Querier, text string, into ...any) (err error) {
	rows, err := q.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	if !rows.Next() {
		return errors.Join(sql.ErrNoRows, rows.Err())
	}
	return rows.Scan(into...)
}

// The errors with which InnoDB rolls back the whole transaction. A time-out of a lock is none of
// them, see check.
const (
	deadlock      = 1213
	recordChanged = 1020 // of MariaDB with innodb_snapshot_isolation
	tooManyLocks  = 1206
)

// ends reports whether a statement has ended its transaction.
func ends(err error) bool {
	var e *my.MySQLError
	return errors.As(err, &e) &&
		(e.Number == deadlock || e.Number == recordChanged || e.Number == tooManyLocks)
}

func classify(err error) sqlstore.Class {
	if errors.Is(err, dedup.ErrTxAborted) {
		return sqlstore.Aborted
	}
	var e *my.MySQLError
	if !errors.As(err, &e) || errors.Is(err, driver.ErrBadConn) {
		return sqlstore.Unknown
	}
	switch e.Number {
	case deadlock, recordChanged,
		3101: // Group Replication has found a conflict with another member at COMMIT
		return sqlstore.Again
	case 1062:
		return sqlstore.Taken
	case 1205, 3572: // lock wait time-out, NOWAIT
		return sqlstore.Locked
	case 1305: // SAVEPOINT does not exist
		return sqlstore.Ended
	case 1146, 1054, 1044, 1045, 1049, 1142, 1143:
		return sqlstore.Setup
	case 1021, 1037, 1038, 1040, 1041, 1053, 1203, 1290, 1836, 1927,
		1114,         // the disk is full
		tooManyLocks, //
		1226,         // the limit of the account
		1047:         // a node of Galera that is not ready
		return sqlstore.Down
	case 1317, 3024, 1969: // by KILL QUERY, max_execution_time, max_statement_time
		return sqlstore.Stopped
	}
	return sqlstore.Refused
}
