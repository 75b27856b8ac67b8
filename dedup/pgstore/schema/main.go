// Command schema prints the tables of the Postgres store, for a migration tool:
//
//	go run github.com/idem-go/idem/dedup/pgstore/schema > migrations/0007_idem.sql
//
// With -compact it prints the compact layout, which is chosen once (see pgstore.Compact).
//
// With -cron it prints the procedure for pg_cron that deletes expired rows, in place of a
// pgstore.Reaper.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/idem-go/idem/dedup/pgstore"
)

func main() {
	cron := flag.Bool("cron", false, "print the procedure for pg_cron instead of the tables")
	compact := flag.Bool("compact", false, "print the tables of the compact layout")
	flag.Parse()
	text := pgstore.Schema()
	if *compact {
		text = pgstore.Schema(pgstore.Compact())
	}
	if *cron {
		text = pgstore.CronSchema()
	}
	if _, err := fmt.Print(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
