package pgstore

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaVersion is the version of schema.sql that this release needs at least. Later ones keep working for it.
const schemaVersion = 1

//go:embed schema.sql
var schemaSQL string

//go:embed sql/*.sql
var sqlFiles embed.FS

// beginSQL says the isolation level, whatever default_transaction_isolation is (P-02). It does not say READ WRITE: a
// database that was made read-only is to stay so (P-26).
const beginSQL = "begin isolation level read committed"

// findSchemaSQL looks for the tables along the search path. The schema of temporary tables is not on that list.
const findSchemaSQL = `SELECT s FROM unnest(current_schemas(false)) WITH ORDINALITY AS p(s, n)
	WHERE to_regclass(quote_ident(s) || '.idempotency_keys') IS NOT NULL ORDER BY n LIMIT 1`

// Schema returns the SQL text that makes the tables, as it lies in schema.sql: for a migration tool of your own. It may be
// run again and names no schema, so set the search path.
func Schema() string { return schemaSQL }

// Migrate makes the tables or brings them up to date, in one transaction. It may be run at every start and by several
// instances at once: they wait for each other, for at most a minute. The role must own the tables. Without [InSchema] the first
// schema of the search path is taken; one named by it is created if it does not exist.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	s := New(pool, opts...)
	if s.wrong != nil {
		return s.wrong
	}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// What the application's role has as time-outs is not meant for this (P-27). A lock on the tables would make all
		// workers wait behind it, so it is asked for briefly, and the advisory lock first: it blocks nobody else.
		for _, q := range []string{
			"SET LOCAL statement_timeout = '60s'", "SET LOCAL lock_timeout = '60s'",
			"SELECT pg_advisory_xact_lock(hashtextextended('github.com/idem-go/idem/dedup/pgstore', 0))",
			"SET LOCAL lock_timeout = '5s'",
		} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		if s.schema != "" {
			if err := enterSchema(ctx, tx, s.schema); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, schemaSQL) // without arguments: many statements in one message
		return err
	})
	return ledgerError(ctx, "migrate", err)
}

// enterSchema makes the schema only if it is missing: CREATE SCHEMA IF NOT EXISTS asks for the right to create one even if
// there is nothing to do.
func enterSchema(ctx context.Context, tx pgx.Tx, name string) error {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL", name).Scan(&there); err != nil {
		return err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if !there {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+quoted); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "SET LOCAL search_path = "+quoted)
	return err
}

// statements are the texts of sql/*.sql with the schema filled in.
type statements struct {
	beginClaims, beginTx, restore                          string
	insertKeys, existingKeys, insertEvents, existingEvents string
	renew, complete, release, finishEvents                 string
	reopenEvent, reopenKey, reopenedEvent, reopenedKey     string
	countStart, clearStarts, version, keyColumns           string
	uniqueTests                                            map[string]string // by table
}

func newStatements(schema string) *statements {
	file := func(name string, more ...string) string {
		text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
		if err != nil { // a file that is not embedded: a mistake of the build, seen by every test
			return fmt.Sprintf("missing %s", name)
		}
		pairs := append([]string{"{schema}", pgx.Identifier{schema}.Sanitize()}, more...)
		return strings.NewReplacer(pairs...).Replace(string(text))
	}
	const forget = ", uncertain = false, failures = 0, takeovers = 0, token = NULL"
	return &statements{
		beginClaims: file("begin_claims"), beginTx: file("begin_tx"), restore: file("restore"),
		insertKeys: file("insert_keys"), existingKeys: file("existing_keys"),
		insertEvents: file("insert_events"), existingEvents: file("existing_events"),
		renew: file("renew"), complete: file("complete"), release: file("release"), finishEvents: file("finish_events"),
		reopenEvent:   file("reopen", "{table}", "processed_events", "{clear}", ""),
		reopenKey:     file("reopen", "{table}", "idempotency_keys", "{clear}", forget),
		reopenedEvent: file("reopened", "{table}", "processed_events"),
		reopenedKey:   file("reopened", "{table}", "idempotency_keys"),
		countStart:    file("count_start"), clearStarts: file("clear_starts"),
		version: file("version"), keyColumns: file("key_columns"),
		uniqueTests: map[string]string{
			"processed_events": file("unique_test", "{table}", "processed_events",
				"{columns}", ", expires_at", "{values}", ", clock_timestamp()"),
			"idempotency_keys": file("unique_test", "{table}", "idempotency_keys",
				"{columns}", ", expires_at, status", "{values}", ", clock_timestamp(), 'released'"),
			"event_starts": file("unique_test", "{table}", "event_starts", "{columns}", "", "{values}", ""),
		},
	}
}
