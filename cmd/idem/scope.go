package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/pgschema"
)

func newScopeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scope",
		Short: "Records of scopes: create one, accept a new identity",
		Long: "A store has a record of each scope: its topics, and where its handlers find the\n" +
			"identity of each event type. A consumer that differs from the record does not\n" +
			"start. These commands write the record that a consumer with Config.NewScope or\n" +
			"Config.AcceptNewIdentity would write, once.",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(newScopeCreateCmd(a), newScopeAcceptCmd(a))
	return cmd
}

// registrars opens the stores, which must keep records of scopes.
func (a *app) registrars(ctx context.Context) ([]*openedStore, error) {
	stores, err := a.openStores(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range stores {
		if _, ok := l.store.(dedup.Registrar); !ok {
			return nil, usage("%s keeps no records of scopes", l.name)
		}
	}
	return stores, nil
}

// descriptorsOf returns the recorded descriptors of a scope by event type. Redis has the types
// only.
func (a *app) descriptorsOf(
	ctx context.Context, l *openedStore, scope string,
) (map[string]string, error) {
	known := make(map[string]string)
	if store, ok := l.store.(*redisstore.Store); ok {
		types, err := store.Types(ctx, scope)
		for _, typ := range types {
			known[typ] = ""
		}
		return known, err
	}
	keep := func(typ, descriptor string) { known[typ] = descriptor }
	var err error
	switch {
	case l.pool != nil:
		table := pgschema.Table(a.schema, "idem_descriptors")
		err = descriptorsInPostgres(ctx, l.pool, table, scope, keep)
	case l.db != nil:
		err = descriptorsIn(ctx, l.db, scope, keep)
	case l.file != "":
		var db *sql.DB
		if db, err = readSQLite(l.file); err == nil {
			err = descriptorsIn(ctx, db, scope, keep)
			_ = db.Close() // it was read only
		}
	default:
		return nil, usage("%s does not show its records of scopes", l.name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.name, err)
	}
	return known, nil
}

func descriptorsInPostgres(
	ctx context.Context, pool *pgxpool.Pool, table, scope string, keep func(typ, descriptor string),
) error {
	rows, err := pool.Query(ctx,
		"SELECT event_type, descriptor FROM "+table+" WHERE scope = $1", scope)
	if err != nil {
		return err
	}
	var typ, descriptor string
	_, err = pgx.ForEachRow(rows, []any{&typ, &descriptor}, func() error {
		keep(typ, descriptor)
		return nil
	})
	return err
}

// descriptorsIn reads a store of sqlstore.
func descriptorsIn(
	ctx context.Context, db *sql.DB, scope string, keep func(typ, descriptor string),
) error {
	rows, err := db.QueryContext(ctx, "SELECT event_type, descriptor FROM idem_descriptors WHERE "+
		"scope = ?", scope)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var typ, descriptor string
		if err := rows.Scan(&typ, &descriptor); err != nil {
			return err
		}
		keep(typ, descriptor)
	}
	return rows.Err()
}

// register writes a record into each store.
func register(ctx context.Context, stores []*openedStore, r dedup.Registration) error {
	for _, l := range stores {
		if err := l.store.(dedup.Registrar).Register(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// scopeResult is the result of a verb of scopes.
type scopeResult struct {
	dryRunView
	Scope  string   `json:"scope"`
	Group  string   `json:"group,omitempty"`
	Topics []string `json:"topics,omitempty"`
	Types  []string `json:"types,omitempty"`
	Stores []string `json:"stores"`
}

func namesOf(stores []*openedStore) (names []string) {
	for _, l := range stores {
		names = append(names, l.name)
	}
	return names
}
