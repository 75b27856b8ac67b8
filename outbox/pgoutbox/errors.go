package pgoutbox

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/internal/pgschema"
)

var (
	errNoTables = errors.New("no schema of the search path has the tables")
	errNoLocks  = errors.New("the server has no room for more locks: " +
		"raise max_locks_per_transaction, or add events of fewer topics and keys at once")
	errNoTx   = fmt.Errorf("pgoutbox: %w", outboxrow.ErrNoTx)
	errNoPool = errors.New("pgoutbox: New was given no pool")
)

// The SQLSTATEs with a treatment of their own.
const (
	codeNoTable   = "42P01"
	codeNoSchema  = "3F000"
	codeNoRight   = "42501"
	codeNoDB      = "3D000"
	codeNoLogin   = "28000"
	codePassword  = "28P01"
	codeNoMemory  = "53200"
	codeReadOnly  = "25006"
	codeShutdown  = "57P01"
	codeCrash     = "57P02"
	codeNotYet    = "57P03"
	codeIdleEnded = "57P05"
)

// sqlState returns the SQLSTATE of err, or an empty string.
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// unavailable reports whether a code means a fault of the server, and not of the event.
func unavailable(code string) bool {
	switch code {
	case "":
		return false
	case codeReadOnly, codeShutdown, codeCrash, codeNotYet, codeIdleEnded:
		return true
	}
	class := code[:min(2, len(code))]
	return class == "08" || class == "53" || class == "58" || class == "XX"
}

// target is the database that an error comes from.
type target struct {
	cfg    *pgx.ConnConfig // nil: not known
	option string          // the schema of InSchema
	found  string          // the schema that has the tables; empty: not looked up
}

// explain adds verb to err. If something is not set up, the result is a [*dedup.SetupError] with
// the remedy.
func (t target) explain(verb string, err error) error {
	if err == nil || errors.Is(err, errNoPool) {
		return err
	}
	role, database := "", ""
	if t.cfg != nil {
		role, database = t.cfg.User, t.cfg.Database
	}
	setup := &dedup.SetupError{Err: err}
	switch code := sqlState(err); {
	case errors.Is(err, errNoTables), code == codeNoTable, code == codeNoSchema:
		setup.Problem, setup.Fix = "the tables of the outbox are missing", t.migrateFix()
	case code == codeNoRight:
		setup.Problem = fmt.Sprintf("role %q lacks rights on the tables of the outbox", role)
		setup.Fix = t.grants(verb, role)
	case code == codeNoDB:
		setup.Problem = fmt.Sprintf("the database %q does not exist", database)
		setup.Fix = "create it, then " + t.migrateFix()
	case code == codePassword, code == codeNoLogin:
		setup.Problem = fmt.Sprintf("the server refuses to log in role %q", role)
		setup.Fix = "give the role a password, and a line in pg_hba.conf that permits the login"
	default:
		return fmt.Errorf("pgoutbox: %s: %w", verb, err)
	}
	return fmt.Errorf("pgoutbox: %s: %w", verb, setup)
}

// migrateFix returns the command that creates or updates the tables.
func (t target) migrateFix() string {
	command := pgschema.MigrateCommand(t.cfg, t.option, "--outbox")
	return "run `" + command + "`, or pgoutbox.Migrate"
}

// grants returns the statements that give a role the rights for a verb. The documentation of the
// package has the same list.
func (t target) grants(verb, role string) string {
	if verb == "migrate" {
		return "migrate as the owner of the tables"
	}
	usage, on, to := "", "", " TO "+pgx.Identifier{role}.Sanitize()
	if schema := cmp.Or(t.found, t.option); schema != "" {
		name := pgx.Identifier{schema}.Sanitize()
		usage, on = "GRANT USAGE ON SCHEMA "+name+to+"; ", name+"."
	}
	grant := func(rights, table string) string {
		return "GRANT " + rights + " ON " + on + table + to
	}
	if verb == "add" {
		return "run as their owner: " + usage + grant("INSERT", "idem_outbox")
	}
	return "run as their owner: " + usage + grant("SELECT, UPDATE, DELETE", "idem_outbox") +
		"; " + grant("SELECT, UPDATE", "idem_outbox_shards") +
		"; " + grant("SELECT, INSERT, UPDATE, DELETE", "idem_outbox_relays") +
		"; " + grant("SELECT", "idem_outbox_schema")
}
