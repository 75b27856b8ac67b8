package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"strings"

	"github.com/idem-go/idem/outbox"
)

// schemaVersion is the least version of schema.sql that this release needs. Later versions work
// too.
const schemaVersion = 1

//go:embed schema.sql
var schemaSQL string

// Schema returns the SQL text that creates the tables, for a migration tool of your own: the
// content of schema.sql. The text may be run again. No database is named: the session has one.
func Schema() string { return schemaSQL }

// migrateWait is how long instances wait for each other, in seconds.
const migrateWait = "60"

var errMigrateBusy = errors.New("another instance has been creating the tables for a minute")

// Migrate creates the tables that are missing in the database of db. The user needs the right to
// create tables. Errors are the database's.
//
// Migrate may be run at every start and by several instances at once. Instances wait for each
// other, for at most a minute. If the tables are up to date, Migrate locks no table.
func Migrate(ctx context.Context, db *sql.DB) error {
	o := New(db)
	return explain("migrate", o.bounded(ctx, func(conn *sql.Conn) (err error) {
		const lock = "concat('idem_outbox.', left(coalesce(database(), ''), 50))"
		var got sql.Null[int]
		err = one(ctx, conn, "SELECT GET_LOCK("+lock+", "+migrateWait+")", &got)
		if err == nil && got.V != 1 {
			err = errMigrateBusy
		}
		if err != nil {
			return err
		}
		defer func() { // the lock belongs to the session, which goes on in the pool
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			err = errors.Join(err, one(end, conn, "SELECT RELEASE_LOCK("+lock+")", &got))
		}()
		if upToDate(ctx, conn) {
			return nil
		}
		for statement := range strings.SplitSeq(schemaSQL, ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}))
}

// upToDate reports whether all tables and rows exist in this version. After an error Migrate runs,
// and has the same error if the table is not missing.
func upToDate(ctx context.Context, q querier) bool {
	var version, locks, shards int
	err := one(ctx, q, rowsText, &version, &locks, &shards)
	return err == nil && version >= schemaVersion && locks == slots && shards == outbox.Shards
}

// rowsText reads the version and the numbers of fixed rows.
const rowsText = "SELECT (SELECT coalesce(max(version), 0) FROM idem_outbox_schema), " +
	"(SELECT count(*) FROM idem_outbox_locks), (SELECT count(*) FROM idem_outbox_shards)"
