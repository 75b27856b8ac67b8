package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
)

// printed are the databases that migrate print has SQL for.
var printed = []string{"postgres", "mysql"}

func newMigratePrint(a *app, layout *string, box *bool) *cobra.Command {
	var database string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL that makes the tables, for a migration tool",
		Example: "  idem migrate print --layout compact\n" +
			"  idem migrate print --database mysql\n" +
			"  idem migrate print --outbox",
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case !slices.Contains(printed, database):
				return usage("--database is %s, not %q", strings.Join(printed, " or "), database)
			case *box && database != printed[0]:
				return usage("--outbox is in Postgres: leave --database away")
			case *box:
				return a.migrateOutboxPrint(*layout)
			}
			return a.migratePrint(database, *layout)
		},
	}
	cmd.Flags().StringVar(&database, "database", printed[0],
		strings.Join(printed, " or ")+"; a store in SQLite makes its own tables")
	complete(cmd, "database", printed...)
	return cmd
}

func (a *app) migratePrint(database, layout string) error {
	if err := checkLayoutFlag(layout); err != nil {
		return err
	}
	text := mysql.Schema()
	switch {
	case database == printed[0] && layout == layoutCompact:
		text = pgstore.Schema(pgstore.Compact())
	case database == printed[0]:
		text = pgstore.Schema()
	case layout != "":
		return usage("--layout is for stores in Postgres")
	}
	fmt.Fprint(a.stdout, text)
	return nil
}
