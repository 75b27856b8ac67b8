package pgschema

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Table is the name of a table as a query has it: in a schema, or, if that is empty, found through the search path.
func Table(schema, name string) string {
	if schema == "" {
		return name
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

// Store is what is known of the tables of a store. The zero value says that they are not there.
type Tables struct {
	// Layout is "readable" or "compact".
	Layout string
	// Schema is where they were found.
	Schema string
	// Version is that of the newest migration.
	Version int
}

// FindStore asks for the layout of a store's tables, in a schema or, if that is empty, through the search path. It is no
// error that there are none.
func FindTables(ctx context.Context, pool *pgxpool.Pool, schema string) (l Tables, err error) {
	table := pgx.Identifier{"idem_schema"}
	if schema != "" {
		table = pgx.Identifier{schema, "idem_schema"}
	}
	err = pool.QueryRow(ctx, `SELECT layout, version, (SELECT n.nspname FROM pg_class c JOIN pg_namespace n
		ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)) FROM `+table.Sanitize()+` ORDER BY version DESC LIMIT 1`,
		table.Sanitize()).Scan(&l.Layout, &l.Version, &l.Schema)
	if code := Code(err); code == "42P01" || code == "3F000" || errors.Is(err, pgx.ErrNoRows) {
		return Tables{}, nil
	}
	return l, err
}

// NoRight is the code of an error that says that a right is missing (insufficient_privilege).
const NoRight = "42501"

// Code is the SQLSTATE of an error of the server, empty if it is another one or none.
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
