// Package pgschema creates the tables of the examples.
package pgschema

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Apply runs ddl in a transaction. Processes that apply a schema of the same name wait for each
// other, because CREATE TABLE IF NOT EXISTS fails when two sessions run it at once.
func Apply(ctx context.Context, pool *pgxpool.Pool, name, ddl string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		const lock = `SELECT pg_advisory_xact_lock(hashtext($1))`
		if _, err := tx.Exec(ctx, lock, name+".migrate"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, ddl)
		return err
	})
}
