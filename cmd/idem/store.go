package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/pgschema"
)

// openedStore is an open store.
type openedStore struct {
	name  string // without credentials
	store dedup.Store
	pool  *pgxpool.Pool         // or nil
	redis redis.UniversalClient // or nil

	pg      *pgstore.Store // or nil
	options []pgstore.Option
	layout  string // that the store is made for
	state   tables

	sql  *sqlstore.Store // in SQLite, MariaDB or MySQL, or nil; nil for a file without tables
	db   *sql.DB         // of MariaDB or MySQL, or nil
	file string          // of SQLite, or ""
}

// hasTables reports whether the store keeps events in SQL tables.
func (l *openedStore) hasTables() bool { return l.pg != nil || l.sql != nil || l.file != "" }

// tables describes the tables of a store.
type tables struct {
	layout  string // "" if the tables are missing or unknown
	schema  string
	version int
	err     error // why that is not known
}

// operator returns the store as a [dedup.Operator].
func (l *openedStore) operator() dedup.Operator { return l.store.(dedup.Operator) }

// shared returns the store for the packages that the ops page uses too.
func (l *openedStore) shared() deadletters.NamedStore {
	return deadletters.NamedStore{Name: l.name, Store: l.store}
}

func shared(stores []*openedStore) []deadletters.NamedStore {
	all := make([]deadletters.NamedStore, len(stores))
	for i, l := range stores {
		all[i] = l.shared()
	}
	return all
}

const (
	layoutReadable = "readable"
	layoutCompact  = "compact"
)

// useLayout makes the store for a layout.
func (l *openedStore) useLayout(layout string) {
	l.layout = layout
	l.pg = pgstore.New(l.pool, l.withLayout()...)
	l.store = l.pg
}

func (l *openedStore) withLayout() []pgstore.Option {
	if l.layout != layoutCompact {
		return l.options
	}
	return append(l.options[:len(l.options):len(l.options)], pgstore.Compact())
}

// lookForTables reads the version of the tables.
func (l *openedStore) lookForTables(ctx context.Context, schema string) tables {
	switch {
	case l.pg != nil:
		return findTables(ctx, l.pool, schema)
	case l.db != nil:
		return mysqlTables(ctx, l.db)
	}
	return sqliteTables(ctx, l.file)
}

// findTables reads the layout of the tables in Postgres, so that no flag is needed. If the
// tables are missing or the server cannot be reached, the first call reports that. With a wrong
// layout the store refuses to work.
func findTables(ctx context.Context, pool *pgxpool.Pool, schema string) tables {
	l, err := pgschema.FindTables(ctx, pool, schema)
	return tables{layout: l.Layout, schema: l.Schema, version: l.Version, err: err}
}

var (
	_ dedup.Operator = (*pgstore.Store)(nil)
	_ dedup.Lister   = (*pgstore.Store)(nil)
	_ dedup.Deferrer = (*pgstore.Store)(nil)
	_ dedup.Operator = (*redisstore.Store)(nil)
)
