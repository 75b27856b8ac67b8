// Package pgschema finds and creates the tables of Idem's packages for Postgres.
package pgschema

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// CheckName returns an error unless name can be the name of a schema without quotes (G-05).
func CheckName(name string) error {
	if !identifier.MatchString(name) {
		return fmt.Errorf("schema name %.100q does not match %s", name, identifier)
	}
	return nil
}

// FindSQL returns a query for the first schema of the search path that has table, a plain name.
// Without such a schema the query returns no row. The schema of temporary tables is left out.
func FindSQL(table string) string {
	return `SELECT s FROM unnest(current_schemas(false)) WITH ORDINALITY AS p(s, n)
	WHERE to_regclass(quote_ident(s) || '.` + table + `') IS NOT NULL ORDER BY n LIMIT 1`
}

// Migration creates tables or brings them up to date.
type Migration struct {
	// Lock is the name of the advisory lock. Migrations with the same name run one at a time.
	Lock string
	// Schema is the schema of the tables, created if it does not exist. Empty: the first schema of
	// the search path that has Table, or else the first schema of the path.
	Schema string
	// Table is a table of the migration, for the search. See Schema.
	Table string
	// Done reports whether all tables are up to date. Its search path has the schema only. Nil: SQL
	// always runs.
	Done func(context.Context, pgx.Tx) (bool, error)
	// SQL creates missing tables and brings old ones up to date.
	SQL string
}

// Run migrates in one transaction. Several calls may run at once: they wait for each other, for at
// most a minute. Errors are the database's.
func (m *Migration) Run(ctx context.Context, pool *pgxpool.Pool) error {
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	return pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error { return m.run(ctx, tx) })
}

func (m *Migration) run(ctx context.Context, tx pgx.Tx) error {
	if err := m.lock(ctx, tx); err != nil {
		return err
	}
	if err := m.enter(ctx, tx); err != nil {
		return err
	}
	if m.Done != nil {
		if done, err := m.Done(ctx, tx); done || err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, m.SQL) // without arguments: many statements in one message
	return err
}

// lock takes the advisory lock, which blocks other migrations only. The role's own timeouts are not
// meant for migrations (P-27). The timeout for locks on tables is short, because all workers wait
// behind such a request.
func (m *Migration) lock(ctx context.Context, tx pgx.Tx) error {
	for _, q := range []string{
		"SET LOCAL statement_timeout = '60s'", "SET LOCAL lock_timeout = '60s'",
	} {
		if _, err := tx.Exec(ctx, q); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", m.Lock)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'")
	return err
}

// enter makes one schema the search path: the named one, the one of the tables, or the first one. A
// named schema is created only if it is missing, because CREATE SCHEMA IF NOT EXISTS requires the
// right to create one in any case.
func (m *Migration) enter(ctx context.Context, tx pgx.Tx) error {
	name, there := m.Schema, true
	var err error
	if name != "" {
		err = tx.QueryRow(ctx, "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL", name).
			Scan(&there)
	} else {
		find := "SELECT coalesce((" + FindSQL(m.Table) + "), current_schema(), 'public')"
		err = tx.QueryRow(ctx, find).Scan(&name)
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
