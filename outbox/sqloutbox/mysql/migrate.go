package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
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

// Migrate creates the tables that are missing in the database of db, and their fixed rows. The user
// needs the right to create tables. Errors are the database's.
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
		if err := fill(ctx, conn, "idem_outbox_locks", "slot", slots); err != nil {
			return err
		}
		return fill(ctx, conn, "idem_outbox_shards", "shard", outbox.Shards)
	}))
}

// fill inserts the fixed rows that a table has lost. It locks none of the others, which writers
// and relays may have locked.
func fill(ctx context.Context, q querier, table, column string, rows int) error {
	numbers, err := list(ctx, q, "SELECT "+column+" FROM "+table)
	if err != nil {
		return err
	}
	present := make([]bool, rows)
	for _, n := range numbers {
		if n >= 0 && n < int64(rows) {
			present[n] = true
		}
	}
	var values strings.Builder
	for n, ok := range present {
		if !ok {
			fmt.Fprintf(&values, ",(%d)", n)
		}
	}
	if values.Len() == 0 {
		return nil
	}
	_, err = exec(ctx, q, "INSERT INTO "+table+" ("+column+") VALUES "+values.String()[1:])
	return err
}

// upToDate reports whether all tables and rows exist in this version. After an error Migrate runs,
// and has the same error if the table is not missing.
func upToDate(ctx context.Context, q querier) bool {
	var version, locks, shards int
	err := one(ctx, q, rowsText, &version, &locks, &shards)
	return err == nil && version >= schemaVersion && locks == slots && shards == outbox.Shards
}

// rowsText reads the version and the numbers of fixed rows. Rows with other numbers do no harm.
var rowsText = "SELECT (SELECT coalesce(max(version), 0) FROM idem_outbox_schema), " +
	"(SELECT count(*) FROM idem_outbox_locks WHERE slot >= 0 AND slot < " + strconv.Itoa(slots) + "), " +
	"(SELECT count(*) FROM idem_outbox_shards WHERE shard >= 0 AND shard < " +
	strconv.Itoa(outbox.Shards) + ")"
