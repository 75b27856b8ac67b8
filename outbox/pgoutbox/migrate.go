package pgoutbox

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox"
)

// schemaVersion is the least version of schema.sql that this release needs. Later versions work
// too.
const schemaVersion = 1

//go:embed schema.sql
var schemaSQL string

// Schema returns the SQL text that creates the tables, for a migration tool of your own: the
// content of schema.sql. The text may be run again. No schema is named, so set the search path.
func Schema() string { return schemaSQL }

// Migrate creates the tables or brings them up to date, in one transaction. The role must own the
// tables. Errors are the database's.
//
// Migrate may be run at every start and by several instances at once. Instances wait for each
// other, for at most a minute. If the tables are up to date, Migrate locks no table.
//
// With [InSchema] the tables are created in that schema. A missing schema is created too. By
// default the tables are created in the first schema of the search path, unless another schema of
// the search path has the tables.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	o := New(pool, opts...)
	if o.wrong != nil {
		return o.wrong
	}
	m := pgschema.Migration{
		Lock:   "github.com/idem-go/idem/outbox/pgoutbox",
		Schema: o.schema, Table: "idem_outbox",
		Done: upToDate, SQL: schemaSQL,
	}
	return o.failed("migrate", m.Run(ctx, pool))
}

// relations are the tables and indexes of schema.sql.
var relations = []string{
	"idem_outbox_schema", "idem_outbox", "idem_outbox_shards", "idem_outbox_relays",
	"idem_outbox_waiting", "idem_outbox_parked", "idem_outbox_sent",
}

// upToDate reports whether all relations exist in this version. CREATE INDEX IF NOT EXISTS would
// lock the table for the same answer.
func upToDate(ctx context.Context, tx pgx.Tx) (done bool, err error) {
	err = tx.QueryRow(ctx, "SELECT count(to_regclass(n)) = count(*) FROM unnest($1::text[]) n",
		relations).Scan(&done)
	if err != nil || !done {
		return false, err
	}
	err = tx.QueryRow(ctx, `SELECT (SELECT coalesce(max(version), 0) >= $1 FROM idem_outbox_schema)
		AND (SELECT count(*) = $2 FROM idem_outbox_shards)`,
		schemaVersion, outbox.Shards).Scan(&done)
	return done, err
}
