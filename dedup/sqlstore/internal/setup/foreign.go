// Package setup looks at a database before tables are created in it.
package setup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// marker is the first table that a schema creates. Where it is, the others are Idem's.
const marker = "idem_schema"

// objects are the names of all tables and indexes of a schema.
var objects = regexp.MustCompile(`(?m)^CREATE (?:UNIQUE )?(?:TABLE|INDEX) IF NOT EXISTS (\w+)`)

var creates = regexp.MustCompile(`(?m)^CREATE TABLE IF NOT EXISTS (\w+)`)

// RefuseForeign fails if the database has a table with the name of a table of schema, although Idem
// was never set up there. CREATE TABLE IF NOT EXISTS would take the table for Idem's. names is a
// query for the names of all tables and views. fix is the Fix of the [dedup.SetupError].
func RefuseForeign(ctx context.Context, db *sql.DB, names, schema, fix string) (err error) {
	rows, err := db.QueryContext(ctx, names)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var existing []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		existing = append(existing, name)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if foreign := foreignOf(existing, schema); len(foreign) > 0 {
		return &dedup.SetupError{
			Problem: fmt.Sprintf("the database has %s of another program", strings.Join(foreign, ", ")),
			Fix:     fix,
		}
	}
	return nil
}

// Complete reports whether the names of tables and indexes have all those of schema.
func Complete(existing []string, schema string) bool {
	for _, m := range objects.FindAllStringSubmatch(schema, -1) {
		if !slices.Contains(existing, m[1]) {
			return false
		}
	}
	return true
}

// foreignOf returns the existing tables that have a name of schema and are not Idem's.
func foreignOf(existing []string, schema string) (foreign []string) {
	for _, m := range creates.FindAllStringSubmatch(schema, -1) {
		switch name := m[1]; {
		case !slices.ContainsFunc(existing, func(e string) bool { return strings.EqualFold(e, name) }):
		case name == marker:
			return nil
		default:
			foreign = append(foreign, name)
		}
	}
	return foreign
}
