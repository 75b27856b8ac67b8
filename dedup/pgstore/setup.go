package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// setupError returns what is wrong with the set-up if err says so: waiting does not mend it. Nil for any other error.
func (s *Store) setupError(err error) error {
	e := &dedup.SetupError{Err: err}
	switch code := sqlState(err); {
	case errors.Is(err, errNoTables), code == codeNoTable, code == codeNoSchema:
		e.Problem, e.Fix = "the tables of the store are missing", s.migrateFix()
	case code == codeNoColumn:
		e.Problem, e.Fix = "the tables of the store are older than this release", s.migrateFix()
	case code == codeNoRight:
		e.Problem, e.Fix = fmt.Sprintf("role %q lacks a right on the tables of the store", s.role()), "run as their owner: "+s.grants(nil)
	case code == codePassword, code == codeNoLogin:
		e.Problem, e.Fix = fmt.Sprintf("the server refuses to log in role %q", s.role()), "give it a password and a line in pg_hba.conf that the server takes"
	case code == codeNoDatabase:
		e.Problem, e.Fix = fmt.Sprintf("the database %q does not exist", s.pool.Config().ConnConfig.Database), "create it, then "+s.migrateFix()
	default:
		return nil
	}
	return e
}

// migrateFix is the command that makes the tables, or brings them up to date.
func (s *Store) migrateFix() string {
	var more []string
	if s.layout == compact {
		more = append(more, "--layout", "compact")
	}
	var cfg *pgx.ConnConfig
	if s.pool != nil {
		cfg = s.pool.Config().ConnConfig
	}
	return "run `" + pgschema.MigrateCommand(cfg, s.schema, more...) + "`, or pgstore.Migrate"
}

func (s *Store) role() string {
	if s.pool == nil {
		return ""
	}
	return s.pool.Config().ConnConfig.User
}

// privilege is what a role that handles events needs on a table. The documentation of the package says the same.
type privilege struct {
	table, rights string
	check         bool // every worker needs it: Check refuses a role without it
}

// privileges of a layout, its own tables first.
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
		{"idem_progress", all, false}, {"deferred_queues", all, false}, {"deferred", all, false}, // of consumers, of KeyOrdered
		{"idem_scopes", write, false}, {"idem_scope_topics", write, false}, {"idem_recipes", write, false}, // Register needs them
	}...)
}

// grants are the statements that give the role its rights: on those tables, or on all if there are none.
func (s *Store) grants(tables []string) string {
	schema := s.schema
	if q := s.sql.Load(); q != nil {
		schema = q.schema
	}
	prefix := ""
	if schema != "" {
		prefix = pgx.Identifier{schema}.Sanitize() + "."
	}
	to := " TO " + pgx.Identifier{s.role()}.Sanitize()
	var order []string
	byRights := map[string][]string{}
	for _, p := range s.layout.privileges() {
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

// checkComplete looks whether all tables are there, and whether the role has the rights that every worker needs.
func (s *Store) checkComplete(ctx context.Context, conn *pgxpool.Conn, q *statements) error {
	var missing, names, tables, rights, lacks []string
	for _, p := range s.layout.privileges() {
		names = append(names, p.table)
		for right := range strings.SplitSeq(p.rights, ", ") {
			if p.check {
				tables, rights = append(tables, p.table), append(rights, right)
			}
		}
	}
	err := conn.QueryRow(ctx, `SELECT coalesce(array_agg(n) FILTER (WHERE to_regclass($1 || '.' || n) IS NULL), '{}') FROM unnest($2::text[]) n`,
		pgx.Identifier{q.schema}.Sanitize(), names).Scan(&missing)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &dedup.SetupError{Problem: "the store lacks " + strings.Join(missing, ", "), Fix: s.migrateFix()}
	}
	err = conn.QueryRow(ctx, `SELECT coalesce(array_agg(DISTINCT t) FILTER (WHERE NOT has_table_privilege($1 || '.' || t, r)), '{}')
		FROM unnest($2::text[], $3::text[]) AS p(t, r)`, pgx.Identifier{q.schema}.Sanitize(), tables, rights).Scan(&lacks)
	if err != nil {
		return err
	}
	if len(lacks) > 0 {
		return &dedup.SetupError{
			Problem: fmt.Sprintf("role %q lacks rights on %s", s.role(), strings.Join(lacks, ", ")),
			Fix:     "run as the owner of the tables: " + s.grants(lacks),
		}
	}
	return nil
}
