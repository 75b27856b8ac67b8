package pgstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaVersion is the lowest version of schema.sql that works with this release. Later versions
// work too.
const schemaVersion = 3

//go:embed schema.sql
var schemaSQL string

//go:embed schema_compact.sql
var compactSQL string

// Schema returns the SQL text that creates the tables, for a migration tool of your own. The
// text names no schema, so set the search path. You may run the text again. The default is the
// text of schema.sql. With [Compact], schema_compact.sql replaces the tables of events and
// claims. Other options have no effect.
func Schema(opts ...Option) string { return schemaText(New(nil, opts...).db.layout) }

// These lines enclose the part of schema.sql that the compact layout replaces.
const layoutBegins, layoutEnds = "-- [The readable layout", "-- [Both layouts.]"

func schemaText(l layout) string {
	before, rest, _ := strings.Cut(schemaSQL, layoutBegins)
	_, after, found := strings.Cut(rest, layoutEnds)
	if l != compact || !found {
		return schemaSQL
	}
	return before + compactSQL + "\n" + layoutEnds + after
}

// Migrate creates or updates the tables, in one transaction. You may call Migrate at each start,
// from several instances at once: the calls wait for each other, for at most a minute. If the
// tables are up to date, Migrate locks no table, so handlers can go on. The role must own the
// tables.
//
// Without [InSchema], Migrate looks for the tables as [New] does. If no schema has tables,
// Migrate creates the tables in the first schema of the search path. If the schema of InSchema
// does not exist, Migrate creates that schema.
//
// A role without the rights is a [*dedup.SetupError], and so is a schema with tables of another
// program that have names of these tables. Choose another schema then, see [InSchema].
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	s := New(pool, opts...)
	if s.db.wrong != nil {
		return s.db.wrong
	}
	m := pgschema.Migration{
		Lock: "github.com/idem-go/idem/dedup/pgstore", Schema: s.db.schema, Table: "idem_schema",
		Done: func(ctx context.Context, tx pgx.Tx) (bool, error) {
			return upToDate(ctx, tx, s.db.layout)
		},
		SQL: schemaText(s.db.layout),
	}
	err := m.Run(ctx, pool)
	var foreign *dedup.SetupError
	switch {
	case errors.Is(err, errLayout), errors.As(err, &foreign):
		return fmt.Errorf("pgstore: migrate: %w", err)
	case sqlState(err) == codeNoRight:
		return fmt.Errorf("pgstore: migrate: %w", &dedup.SetupError{
			Problem: fmt.Sprintf("role %q may not create or change the tables of the store",
				s.db.setup().role()),
			Fix: "migrate as their owner", Err: err,
		})
	}
	return s.db.failed(ctx, "migrate", err)
}

// sharedRelations belong to both layouts, and ownRelations to one.
var (
	sharedRelations = []string{"idem_schema", "event_starts", "idem_progress", "idem_horizons",
		"idem_scopes", "idem_scope_topics", "idem_descriptors", "idem_leases", "deferred_queues",
		"deferred_events", "deferred_queues_due", "deferred_queues_partition"}
	ownRelations = map[layout][]string{
		readable: {"processed_events", "idempotency_keys", "processed_events_expires_at",
			"idempotency_keys_expires_at"},
		compact: {"processed_events_compact", "idempotency_keys_compact",
			"processed_events_compact_expires_at", "idempotency_keys_compact_expires_at",
			"idem_kinds", "idem_origins", "processed_events_read", "idempotency_keys_read"},
	}
)

// upToDate reports whether all relations exist. upToDate fails if the tables have the other layout,
// or are those of another program. CREATE INDEX IF NOT EXISTS would lock the table to find that
// out.
func upToDate(ctx context.Context, tx pgx.Tx, l layout) (done bool, err error) {
	var schema string
	var there bool
	err = tx.QueryRow(ctx, "SELECT current_schema(), to_regclass('idem_schema') IS NOT NULL").
		Scan(&schema, &there)
	if err != nil {
		return false, err
	}
	if !there {
		return false, refuseForeign(ctx, tx, l)
	}
	if err := checkLayout(ctx, l, newStatements(schema, l), tx.QueryRow); err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, `
		SELECT (SELECT count(to_regclass(n)) = count(*) FROM unnest($1::text[]) n)
		AND (SELECT coalesce(max(version), 0) >= $2 FROM idem_schema)
		AND EXISTS (
			SELECT FROM pg_attribute
			WHERE attrelid = 'idem_schema'::regclass AND attname = 'layout')`,
		slices.Concat(sharedRelations, ownRelations[l]), schemaVersion).Scan(&done)
	return done, err
}

// refuseForeign fails if the schema has a relation with the name of one of ours, although Idem was
// never set up there. CREATE TABLE IF NOT EXISTS would take the relation for ours.
func refuseForeign(ctx context.Context, tx pgx.Tx, l layout) error {
	var schema, names string
	err := tx.QueryRow(ctx, `
		SELECT current_schema(), coalesce(string_agg(n, ', '), '') FROM unnest($1::text[]) n
		WHERE to_regclass(quote_ident(current_schema()) || '.' || n) IS NOT NULL`,
		slices.Concat(sharedRelations, ownRelations[l])).Scan(&schema, &names)
	if err != nil || names == "" {
		return err
	}
	return &dedup.SetupError{
		Problem: fmt.Sprintf("schema %q has %s of another program", schema, names),
		Fix:     "choose another schema: pgstore.InSchema, or `IDEM_SCHEMA=idem idem migrate up`",
	}
}
