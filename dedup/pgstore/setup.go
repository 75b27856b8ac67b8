package pgstore

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// setup describes the place of a store's tables and the role of their user.
type setup struct {
	pool   *pgxpool.Pool // nil: not known
	schema string        // that of [InSchema], or ""
	found  string        // the schema with the tables, once known
	layout layout
	reaper bool // the rights are those of a reaper, not of a worker
}

// explain returns a set-up error behind err, or nil. Such an error needs a person: waiting does not
// help.
func (u setup) explain(err error) error {
	e := &dedup.SetupError{Err: err}
	switch code := sqlState(err); {
	case errors.Is(err, errNoTables), code == codeNoTable, code == codeNoSchema:
		e.Problem, e.Fix = "the tables of the store are missing", u.migrateFix()
	case code == codeNoColumn:
		e.Problem, e.Fix = "the tables of the store are older than this release", u.migrateFix()
	case code == codeNoRight:
		e.Problem, e.Fix = fmt.Sprintf("role %q lacks a right on the tables of the store",
			u.role()), "run as their owner: "+u.grants(nil)
	case code == codePassword, code == codeNoLogin:
		e.Problem, e.Fix = fmt.Sprintf("the server refuses to log in role %q", u.role()),
			"give the role a password, and a line in pg_hba.conf that permits the login"
	case code == codeNoDatabase:
		e.Problem, e.Fix = fmt.Sprintf("the database %q does not exist",
			u.pool.Config().ConnConfig.Database), "create it, then "+u.migrateFix()
	default:
		return nil
	}
	return e
}

// migrateFix is the command that creates or updates the tables.
func (u setup) migrateFix() string {
	var more []string
	if u.layout == compact {
		more = append(more, "--layout", "compact")
	}
	var cfg *pgx.ConnConfig
	if u.pool != nil {
		cfg = u.pool.Config().ConnConfig
	}
	return "run `" + pgschema.MigrateCommand(cfg, u.schema, more...) + "`, or pgstore.Migrate"
}

func (u setup) role() string {
	if u.pool == nil {
		return ""
	}
	return u.pool.Config().ConnConfig.User
}

// privilege lists the rights on a table of a role that handles events. The package documentation
// lists the rights, too.
type privilege struct {
	table, rights string
	check         bool // every worker needs it: Check refuses a role without it
}

// privileges returns the rights of a layout, the tables of that layout first.
func (l layout) privileges() []privilege {
	const write, all, read = "SELECT, INSERT, UPDATE", "SELECT, INSERT, UPDATE, DELETE", "SELECT"
	own := []privilege{{"processed_events", write, true}, {"idempotency_keys", write, true}}
	if l == compact {
		own = []privilege{
			{"processed_events_compact", write, true}, {"idempotency_keys_compact", write, true},
			{"processed_events_read", read, true}, {"idempotency_keys_read", read, true},
			{"idem_kinds", "SELECT, INSERT", true}, {"idem_origins", "SELECT, INSERT", true},
		}
	}
	return append(own, []privilege{
		{"event_starts", all, true}, {"idem_schema", read, true}, {"idem_horizons", read, true},
		// for consumers and KeyOrdered
		{"idem_progress", all, false}, {"deferred_queues", all, false},
		{"deferred_events", all, false},
		// for Register
		{"idem_scopes", write, false}, {"idem_scope_topics", write, false},
		{"idem_descriptors", write, false},
	}...)
}

// reaperPrivileges returns the rights of a reaper. The documentation of [Reaper] lists them, too.
func (l layout) reaperPrivileges() []privilege {
	const all, row, read = "SELECT, INSERT, UPDATE, DELETE", "SELECT, UPDATE, DELETE", "SELECT"
	rights := []privilege{
		{table: "idem_leases", rights: all}, {table: "idem_horizons", rights: all},
		{table: "idem_schema", rights: read}, {table: "idem_progress", rights: read},
		{table: "event_starts", rights: row},
	}
	if l == compact {
		return append(rights, []privilege{
			{table: "processed_events_compact", rights: row},
			{table: "idempotency_keys_compact", rights: row},
			{table: "processed_events_read", rights: read},
			{table: "idempotency_keys_read", rights: read}, {table: "idem_kinds", rights: read},
		}...)
	}
	return append(rights, privilege{table: "processed_events", rights: row},
		privilege{table: "idempotency_keys", rights: row})
}

// grants are the statements that give the role the necessary rights on the given tables. No
// tables: on all.
func (u setup) grants(tables []string) string {
	schema := cmp.Or(u.found, u.schema)
	prefix := ""
	if schema != "" {
		prefix = pgx.Identifier{schema}.Sanitize() + "."
	}
	to := " TO " + pgx.Identifier{u.role()}.Sanitize()
	var order []string
	byRights := map[string][]string{}
	privileges := u.layout.privileges()
	if u.reaper {
		privileges = u.layout.reaperPrivileges()
	}
	for _, p := range privileges {
		if len(tables) > 0 && !slices.Contains(tables, p.table) {
			continue
		}
		if byRights[p.rights] == nil {
			order = append(order, p.rights)
		}
		byRights[p.rights] = append(byRights[p.rights], prefix+p.table)
	}
	var all []string
	if schema != "" && len(tables) == 0 {
		all = append(all, "GRANT USAGE ON SCHEMA "+pgx.Identifier{schema}.Sanitize()+to)
	}
	for _, rights := range order {
		all = append(all, "GRANT "+rights+" ON "+strings.Join(byRights[rights], ", ")+to)
	}
	return strings.Join(all, "; ")
}
