package pgschema

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Table returns the name of a table for a query. With an empty schema the server uses the search
// path.
func Table(schema, name string) string {
	if schema == "" {
		return name
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

// Tables describes the tables of a store. The zero value means that there are no tables.
type Tables struct {
	// Layout is "readable" or "compact".
	Layout string
	// Schema is the schema of the tables.
	Schema string
	// Version is the version of the newest migration.
	Version int
}

// FindTables returns the layout of a store's tables in schema. With an empty schema the server uses
// the search path. Missing tables are no error.
func FindTables(ctx context.Context, pool *pgxpool.Pool, schema string) (l Tables, err error) {
	table := pgx.Identifier{"idem_schema"}
	if schema != "" {
		table = pgx.Identifier{schema, "idem_schema"}
	}
	err = pool.QueryRow(ctx, `SELECT layout, version, (SELECT n.nspname FROM pg_class c
		JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1))
		FROM `+table.Sanitize()+` ORDER BY version DESC LIMIT 1`, table.Sanitize()).
		Scan(&l.Layout, &l.Version, &l.Schema)
	code := Code(err)
	if code == "42P01" || code == "3F000" || errors.Is(err, pgx.ErrNoRows) {
		return Tables{}, nil
	}
	return l, err
}

// NoRight is the SQLSTATE of a missing right (insufficient_privilege).
const NoRight = "42501"

// Code returns the SQLSTATE of an error of the server, or an empty string for any other error.
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
