package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
)

// checkWallClock refuses a scope of --wall-clock that no store knows: its name has a mistake. With
// --watch the command only warns, because a service may write its first record later.
func (a *app) checkWallClock(ctx context.Context, stores []*openedStore, f *reapFlags) error {
	if len(f.wallClock) == 0 {
		return nil
	}
	unknown, known, err := a.unknownScopes(ctx, stores, f.wallClock)
	switch {
	case err != nil && f.watch: // the first run reports that, and the next one tries again
		return nil
	case err != nil:
		return err
	case len(unknown) == 0:
		return nil
	}
	names := "the store has"
	if len(stores) > 1 {
		names = "the stores have"
	}
	text := fmt.Sprintf("--wall-clock: %s no record of scope %q", names, unknown[0])
	if len(known) > 0 {
		text += fmt.Sprintf("; progress is on record for %q", known)
	}
	text += "; to see the scopes of all events: idem event list"
	if f.watch {
		a.note("warning: %s", text)
		return nil
	}
	return found("%s", text)
}

// unknownScopes returns the scopes of names that no store knows, and those with progress or a
// horizon in a store.
func (a *app) unknownScopes(
	ctx context.Context, stores []*openedStore, names []string,
) (unknown, known []string, err error) {
	for _, l := range stores {
		some, err := a.agingScopes(ctx, l)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", l.name, err)
		}
		known = append(known, some...)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, name := range names {
		if slices.Contains(known, name) {
			continue
		}
		used, err := hasEvents(ctx, stores, name)
		if err != nil {
			return nil, nil, err
		}
		if !used {
			unknown = append(unknown, name)
		}
	}
	return unknown, known, nil
}

// agingScopes returns the scopes with progress or a horizon. A reaper has the right to read these
// tables.
func (a *app) agingScopes(ctx context.Context, l *openedStore) ([]string, error) {
	switch {
	case l.pool != nil:
		return agingInPostgres(ctx, l.pool, pgschema.Table(a.schema, "idem_progress"),
			pgschema.Table(a.schema, "idem_horizons"))
	case l.db != nil:
		return agingIn(ctx, l.db)
	}
	db, err := readSQLite(l.file)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return agingIn(ctx, db)
}

func agingInPostgres(
	ctx context.Context, pool *pgxpool.Pool, progress, horizons string,
) ([]string, error) {
	rows, err := pool.Query(ctx,
		"SELECT scope FROM "+progress+" UNION SELECT scope FROM "+horizons)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// agingIn reads a store of sqlstore.
func agingIn(ctx context.Context, db *sql.DB) (scopes []string, err error) {
	rows, err := db.QueryContext(ctx,
		"SELECT scope FROM idem_progress UNION SELECT scope FROM idem_horizons")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var scope string
		if err := rows.Scan(&scope); err != nil {
			return nil, err
		}
		scopes = append(scopes, scope)
	}
	return scopes, rows.Err()
}

// hasEvents reports whether a store has an event of the scope. It reads whole tables.
func hasEvents(ctx context.Context, stores []*openedStore, scope string) (has bool, err error) {
	for _, l := range stores {
		err := l.store.(dedup.Lister).List(ctx, dedup.Filter{Scope: scope}, 1,
			func(dedup.Record) bool {
				has = true
				return false
			})
		if err != nil || has {
			return has, err
		}
	}
	return false, nil
}
