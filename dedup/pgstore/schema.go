package pgstore

import (
	"context"
	"embed"
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

// commitSQL commits only the transaction that begin_tx.sql marked, which a handler may have ended and replaced by SQL:
// the session's status looks the same then (P-13). Without arguments, both statements travel in one message.
const commitSQL = "select 1 / (coalesce(current_setting('idem.session', true), '') <> '')::int; commit"

// findSchemaSQL looks for the tables along the search path. The schema of temporary tables is not on that list.
const findSchemaSQL = `SELECT s FROM unnest(current_schemas(false)) WITH ORDINALITY AS p(s, n)
	WHERE to_regclass(quote_ident(s) || '.idempotency_keys') IS NOT NULL ORDER BY n LIMIT 1`

// Schema returns the SQL text that makes the tables, as it lies in schema.sql: for a migration tool of your own. It may
// be run again and names no schema, so set the search path.
func Schema() string { return schemaSQL }

// Migrate makes the tables or brings them up to date, in one transaction. It may be run at every start and by several
// instances at once: they wait for each other, for at most a minute, and where all is there it takes no lock on a
// table, so that handlers which are running do not hold it up. The role must own the tables.
//
// Without [InSchema] the tables are looked for as [New] does, else made in the first schema of the search path. A
// schema that is named by InSchema is created if it does not exist.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	s := New(pool, opts...)
	if s.wrong != nil {
		return s.wrong
	}
	err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// What the application's role has as time-outs is not meant for this (P-27). A lock on a table would make all
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
		if err := enterSchema(ctx, tx, s.schema); err != nil {
			return err
		}
		if done, err := upToDate(ctx, tx); done || err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schemaSQL) // without arguments: many statements in one message
		return err
	})
	return ledgerError(ctx, "migrate", err)
}

// enterSchema makes a schema the only one in the search path: the one named, or that of the tables, or the first. A
// named one is made only if it is missing: CREATE SCHEMA IF NOT EXISTS asks for the right to make one even if there is
// nothing to do.
func enterSchema(ctx context.Context, tx pgx.Tx, name string) error {
	there := true
	var err error
	if name != "" {
		err = tx.QueryRow(ctx, "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL", name).Scan(&there)
	} else {
		err = tx.QueryRow(ctx, "SELECT coalesce(("+findSchemaSQL+"), current_schema(), 'public')").Scan(&name)
	}
	if err != nil {
		return err
	}
	quoted := pgx.Identifier{name}.Sanitize()
	if !there {
		if _, err := tx.Exec(ctx, "CREATE SCHEMA "+quoted); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, "SET LOCAL search_path = "+quoted)
	return err
}

// upToDate reports whether everything is there. CREATE INDEX IF NOT EXISTS would lock its table to find that out.
func upToDate(ctx context.Context, tx pgx.Tx) (done bool, err error) {
	err = tx.QueryRow(ctx, `SELECT count(to_regclass(n)) = count(*) FROM unnest(ARRAY['idem_schema', 'processed_events',
		'idempotency_keys', 'event_starts', 'processed_events_expires_at', 'idempotency_keys_expires_at', 'idem_progress',
		'idem_horizons', 'idem_scopes', 'idem_scope_topics', 'idem_recipes', 'idem_leases']) n`).Scan(&done)
	if err != nil || !done {
		return false, err
	}
	err = tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) >= $1 FROM idem_schema", schemaVersion).Scan(&done)
	return done, err
}

// form says how the columns that requests mostly share travel: as arrays like the others, or once.
type form int

const (
	mixed form = iota
	alike
)

// What stands in the texts of claims for the columns that may be shared. Sorting by one of them costs nothing.
var (
	mixedColumns = []string{
		"{arrays}", ", $1::text[], $2::text[], $3::text[], $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], $9::boolean[]",
		"{columns}", ", tenant, scope, event_type, fingerprint, generation, retry, retention, any_age",
		"{topics}", ", $11::text[]", "{topic_column}", ", topic", "{topic}", "r.topic",
		"{tenant}", "r.tenant", "{scope}", "r.scope", "{event_type}", "r.event_type", "{fingerprint}", "r.fingerprint",
		"{generation}", "r.generation", "{retry}", "r.retry", "{retention}", "r.retention",
		"{any_age}", "r.any_age", "{returning}", "", // two keys may have one ID
	}
	alikeColumns = []string{
		"{arrays}", "", "{columns}", "", "{topics}", "", "{topic_column}", "", "{topic}", "$11::text",
		"{tenant}", "$1::text", "{scope}", "$2::text", "{event_type}", "$3::text", "{fingerprint}", "$5::bytea",
		"{generation}", "$6::bigint", "{retry}", "$7::bigint", "{retention}", "$8::bigint",
		"{any_age}", "$9::boolean", "{returning}", "RETURNING event_id",
	}
)

// statements are the texts of sql/*.sql with the schema filled in.
type statements struct {
	beginClaims, beginTx, restore                      string
	lookKeys, insertKeys, existingKeys                 [2]string // by form
	lookEvents, insertEvents, existingEvents           [2]string // by form
	renew, complete, release, finishEvents, takeBack   string
	reopenEvent, reopenKey, reopenedEvent, reopenedKey string
	countStart, clearStarts, version, keyColumns       string
	uniqueTests                                        map[string]string // by table
	aging                                              agingSQL
}

func newStatements(schema string) *statements {
	read := func(name string) string {
		text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
		if err != nil { // a file that is not embedded: a mistake of the build, seen by every test
			return "missing " + name
		}
		return string(text)
	}
	fill := func(text string, more ...string) string {
		pairs := append([]string{"{schema}", pgx.Identifier{schema}.Sanitize()}, more...)
		return strings.NewReplacer(pairs...).Replace(text)
	}
	file := func(name string, more ...string) string { return fill(read(name), more...) }
	forms := func(verb, table string) [2]string {
		text := read(verb + "_" + table)
		for _, part := range []struct{ name, file string }{
			{"{requests}", "requests"}, {"{answer}", "answer_" + table}, {"{too_old}", "too_old"},
		} {
			text = strings.ReplaceAll(text, part.name, strings.TrimSpace(read(part.file)))
		}
		return [2]string{mixed: fill(text, mixedColumns...), alike: fill(text, alikeColumns...)}
	}
	const forget = ", uncertain = false, failures = 0, takeovers = 0, token = NULL"
	return &statements{
		beginClaims: file("begin_claims"), beginTx: file("begin_tx"), restore: file("restore"),
		lookKeys: forms("look", "keys"), insertKeys: forms("insert", "keys"), existingKeys: forms("existing", "keys"),
		lookEvents: forms("look", "events"), insertEvents: forms("insert", "events"),
		existingEvents: forms("existing", "events"),
		renew:          file("renew"), complete: file("complete"), release: file("release"), finishEvents: file("finish_events"),
		takeBack:      file("take_back"),
		reopenEvent:   file("reopen", "{table}", "processed_events", "{clear}", ""),
		reopenKey:     file("reopen", "{table}", "idempotency_keys", "{clear}", forget),
		reopenedEvent: file("reopened", "{table}", "processed_events"),
		reopenedKey:   file("reopened", "{table}", "idempotency_keys"),
		countStart:    file("count_start"), clearStarts: file("clear_starts"),
		version: file("version"), keyColumns: file("key_columns"),
		aging: newAgingSQL(file),
		uniqueTests: map[string]string{
			"processed_events": file("unique_test", "{table}", "processed_events",
				"{columns}", ", expires_at", "{values}", ", clock_timestamp()", "{key}", ""),
			"idempotency_keys": file("unique_test", "{table}", "idempotency_keys",
				"{columns}", ", expires_at, status", "{values}", ", clock_timestamp(), 'released'", "{key}", ""),
			"event_starts": file("unique_test", "{table}", "event_starts", "{columns}", ", origin_topic, origin_partition, origin_offset",
				"{values}", ", '', 0, 0", "{key}", ", origin_topic, origin_partition, origin_offset"),
		},
	}
}
