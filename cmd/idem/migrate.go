package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
)

func newMigrateCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make and check the tables of a store in a SQL database, or of an outbox",
	}
	var layout string
	var box bool
	cmd.PersistentFlags().
		BoolVar(&box, "outbox", false, "those of an outbox: in the database of --store, else of "+
			"IDEM_OUTBOX, else of IDEM_STORE")
	cmd.PersistentFlags().
		StringVar(&layout, "layout", "", "readable or compact; that of the tables if they are "+
			"there, else readable")
	cmd.AddCommand(
		newMigratePrint(a, &layout, &box),
		&cobra.Command{
			Use:   "up",
			Short: "Make the tables, or bring them up to date",
			Long: "Makes the tables or brings them up to date, in Postgres in one transaction. The\n" +
				"command can be repeated and keeps existing rows.",
			Example: "  idem migrate up --store postgres://idem@db/shop\n" +
				"  idem migrate up --outbox --store postgres://idem@db/shop --schema events",
			Args: none,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if box {
					return a.migrateOutboxUp(cmd, layout)
				}
				return a.migrateUp(cmd.Context(), layout)
			},
		},
		&cobra.Command{
			Use:   "status",
			Short: "Check that the tables are there and fit for use",
			Long: "Prints whether the tables exist, have the version of this release, and are\n" +
				"fit for use. The command writes test rows in transactions and rolls back.\n" +
				"Exit code 1 if a store must not be used.",
			Example: "  idem migrate status --store postgres://idem@db/shop\n" +
				"  idem migrate status --outbox -o json",
			Args: none,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if box {
					return a.migrateOutboxStatus(cmd, layout)
				}
				return a.migrateStatus(cmd.Context(), layout)
			},
		},
	)
	for _, sub := range cmd.Commands() {
		complete(sub, "layout", layoutReadable, layoutCompact)
	}
	return cmd
}

func (a *app) migrateUp(ctx context.Context, layout string) error {
	a.bare = true
	stores, err := a.openTables(ctx, layout)
	if err != nil {
		return err
	}
	all, rows := []tablesView{}, [][]string{}
	for _, l := range stores {
		before := l.state
		fields := map[string]any{
			"store": l.name, "layout": l.layout, "version_before": before.version,
		}
		err := a.audited("migrate up", fields, func() error {
			if before.err != nil && !errors.Is(before.err, fs.ErrNotExist) {
				return fmt.Errorf("%s: %w", l.name, before.err)
			}
			return a.makeTables(ctx, l)
		})
		if err != nil {
			return err
		}
		now := l.lookForTables(ctx, a.schema)
		v := tablesView{
			Store: l.name, Schema: now.schema, Layout: now.layout, Version: now.version,
			State: "ok",
		}
		all, rows = append(all, v), append(rows, v.row())
	}
	return a.show(all, tablesHeader, rows)
}

// makeTables makes the tables of a store, or brings them up to date.
func (a *app) makeTables(ctx context.Context, l *openedStore) error {
	switch {
	case l.pg != nil:
		return pgstore.Migrate(ctx, l.pool, l.withLayout()...)
	case l.db != nil:
		return mysql.Migrate(ctx, l.db)
	}
	return a.createSQLite(ctx, l)
}

func (a *app) migrateStatus(ctx context.Context, layout string) error {
	a.bare = true
	stores, err := a.openTables(ctx, layout)
	if err != nil {
		return err
	}
	all, rows := []tablesView{}, [][]string{}
	var bad, away []string
	for _, l := range stores {
		v := l.status(ctx)
		v.Problem = a.redact(v.Problem)
		switch v.State {
		case "ok":
		case "unavailable":
			away = append(away, l.name)
		default:
			bad = append(bad, l.name)
		}
		all, rows = append(all, v), append(rows, v.lines()...)
	}
	if err := a.show(all, tablesHeader, rows); err != nil {
		return err
	}
	switch {
	case len(away) > 0:
		return fmt.Errorf("not to be used now: %s", strings.Join(away, ", "))
	case len(bad) > 0:
		return found("must not be used in this state: %s", strings.Join(bad, ", "))
	}
	return nil
}

func (l *openedStore) status(ctx context.Context) tablesView {
	v := tablesView{
		Store: l.name, Schema: l.state.schema, Layout: l.state.layout, Version: l.state.version,
		State: "ok",
	}
	switch {
	case errors.Is(l.state.err, fs.ErrNotExist):
		v.State, v.Problem = "missing", "there is no such file: idem migrate up"
		return v
	case l.state.err != nil:
		v.State, v.Problem = "unavailable", l.state.err.Error()
		return v
	case l.state.layout == "":
		v.State, v.Problem = "missing", "the tables are not there: idem migrate up"
		return v
	}
	var err error
	v.Warnings, err = l.check(ctx)
	var setup *dedup.SetupError
	switch {
	case errors.As(err, &setup): // the tables are missing, which is no outage here
		v.State, v.Problem = "unfit", err.Error()
	case errors.Is(err, dedup.ErrUnavailable), err != nil && ctx.Err() != nil: // ended by Ctrl-C
		v.State, v.Problem = "unavailable", err.Error()
	case err != nil:
		v.State, v.Problem = "unfit", err.Error()
	}
	return v
}
