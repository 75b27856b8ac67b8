// Package pgschema finds and makes the tables of Idem's packages for Postgres.
package pgschema

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// CheckName reports whether name can be a schema's without quotes (G-05).
func CheckName(name string) error {
	if !identifier.MatchString(name) {
		return fmt.Errorf("schema name %.100q does not match %s", name, identifier)
	}
	return nil
}

// FindSQL returns a query for the first schema of the search path that has table, a plain name. It returns no row if none
// has it. The schema of temporary tables is not on that list.
func FindSQL(table string) string {
	return `SELECT s FROM unnest(current_schemas(false)) WITH ORDINALITY AS p(s, n)
	WHERE to_regclass(quote_ident(s) || '.` + table + `') IS NOT NULL ORDER BY n LIMIT 1`
}

// Migration makes tables or brings them up to date.
type Migration struct {
	// Lock names what two of them at once wait for.
	Lock string
	// Schema to make the tables in; it is created if it does not exist. Empty: the one that has Table, else the first of the search path.
	Schema, Table string
	// Done reports whether everything is there; the schema is the only one in the search path then. Optional.
	Done func(context.Context, pgx.Tx) (bool, error)
	// SQL makes what is missing.
	SQL string
}

// Run migrates in one transaction. It may be run by several at once: they wait for each other, for at most a minute.
func (m *Migration) Run(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// What the application's role has as time-outs is not meant for this (P-27). A lock on a table would make all
		// workers wait behind it, so it is asked for briefly, and the advisory lock first: it blocks nobody else.
		for _, q := range []string{"SET LOCAL statement_timeout = '60s'", "SET LOCAL lock_timeout = '60s'"} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", m.Lock); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
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
	})
}

// enter makes a schema the only one in the search path: the one named, or that of the tables, or the first. A named one
// is made only if it is missing: CREATE SCHEMA IF NOT EXISTS asks for the right to make one even if there is nothing to do.
func (m *Migration) enter(ctx context.Context, tx pgx.Tx) error {
	name, there := m.Schema, true
	var err error
	if name != "" {
		err = tx.QueryRow(ctx, "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL", name).Scan(&there)
	} else {
		err = tx.QueryRow(ctx, "SELECT coalesce(("+FindSQL(m.Table)+"), current_schema(), 'public')").Scan(&name)
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
