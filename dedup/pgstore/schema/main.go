// Command schema prints the tables of the Postgres ledger, for a migration tool:
//
//	go run github.com/idem-go/idem/dedup/pgstore/schema > migrations/0007_idem.sql
package main

import (
	"fmt"
	"os"

	"github.com/idem-go/idem/dedup/pgstore"
)

func main() {
	if _, err := fmt.Print(pgstore.Schema()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
