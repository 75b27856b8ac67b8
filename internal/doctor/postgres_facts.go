package doctor

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/pgschema"
)

// pgFacts is the state of a server, as a session of a worker sees it.
type pgFacts struct {
	role, database string
	standby        bool
	direct         bool                 // no pooler is in between
	given          bool                 // the session is from a worker's own pool
	refused        bool                 // a pooler refused the parameters of pgstore.Configure
	local          bool                 // no TCP
	settings       map[string]pgSetting // of this session
	schema         string               // of the tables; empty: the search path
	hidden         bool                 // no USAGE on schema: elsewhere and tables are not known
	elsewhere      []pgElsewhere        // of other roles in this database
	tables         []pgTable
	readsStats     bool // the role may read the state of the standbys
	replicas       int  // standbys that stream from this server
	synchronous    int  // the standbys that a commit waits for; 0 without readsStats
	roleLimit      int  // connections; -1: no limit
	databaseLimit  int
	others         int // connections of other roles
	skew, within   time.Duration
}

// pgSetting is one row of pg_settings, in its base unit.
type pgSetting struct{ value, source string }

// pgElsewhere is a setting of another role.
type pgElsewhere struct{ role, name, value string }

type pgTable struct {
	name       string
	unlogged   bool
	autovacuum bool
}

// number returns a setting in its base unit. A setting that the server does not have is zero.
func (f *pgFacts) number(name string) int64 {
	n, err := strconv.ParseInt(f.settings[name].value, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (f *pgFacts) millis(name string) time.Duration {
	return time.Duration(f.number(name)) * time.Millisecond
}

func (f *pgFacts) on(name string) bool { return f.settings[name].value == "on" }

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// pgSettingNames are the settings that the checks need.
var pgSettingNames = []string{
	"fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names",
	"default_transaction_read_only", "client_connection_check_interval", "tcp_keepalives_idle",
	"idle_in_transaction_session_timeout", "transaction_timeout", "statement_timeout",
	"lock_timeout", "max_connections", "superuser_reserved_connections", "reserved_connections",
	"autovacuum", "track_counts",
}

// pgTables are the tables of both layouts with rows that change.
var pgTables = []string{
	"processed_events", "idempotency_keys", "processed_events_compact", "idempotency_keys_compact",
	"idem_kinds", "idem_origins", "event_starts", "idem_progress", "idem_horizons", "idem_scopes",
	"idem_scope_topics", "idem_descriptors",
}

// askPostgres reads the facts on one connection.
func (d *examination) askPostgres(ctx context.Context, pool *pgxpool.Pool) (*pgFacts, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	f := &pgFacts{schema: d.in.Schema}
	var pid uint32
	// Without pg_read_all_stats, the backend_type of other roles' sessions and sync_state are NULL.
	err = conn.QueryRow(ctx, `SELECT current_user, current_database(), pg_is_in_recovery(),
			pg_backend_pid(), inet_client_addr() IS NULL,
			(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			(SELECT count(*) FROM pg_stat_activity WHERE usename <> current_user
				AND (backend_type = 'client backend'
					OR backend_type IS NULL AND datid IS NOT NULL))::int,
			pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'),
			(SELECT count(*) FROM pg_stat_replication)::int,
			(SELECT count(*) FROM pg_stat_replication
				WHERE sync_state IN ('sync', 'quorum'))::int`).
		Scan(&f.role, &f.database, &f.standby, &pid, &f.local, &f.roleLimit, &f.databaseLimit,
			&f.others, &f.readsStats, &f.replicas, &f.synchronous)
	if err != nil {
		return nil, err
	}
	f.direct = pid == conn.Conn().PgConn().PID()
	if err := askSettings(ctx, conn.Conn(), f); err != nil {
		return nil, err
	}
	type ask func(context.Context, *pgx.Conn, *pgFacts) error
	for _, ask := range []ask{d.askElsewhere, d.askTables} {
		err := ask(ctx, conn.Conn(), f)
		// A schema without USAGE is no failure of the connection. The store's check reports it.
		switch {
		case pgschema.Code(err) == pgschema.NoRight:
			f.hidden = true
		case err != nil:
			return nil, err
		}
	}
	return f, d.askClock(ctx, conn.Conn(), f)
}

func askSettings(ctx context.Context, conn *pgx.Conn, f *pgFacts) error {
	rows, err := conn.Query(ctx,
		"SELECT name, setting, source FROM pg_settings WHERE name = ANY ($1)", pgSettingNames)
	if err != nil {
		return err
	}
	f.settings = map[string]pgSetting{}
	var name string
	var s pgSetting
	_, err = pgx.ForEachRow(rows, []any{&name, &s.value, &s.source}, func() error {
		f.settings[name] = s
		return nil
	})
	return err
}

// askElsewhere reads the settings of other roles that may write the store: the workers may have
// another role than the doctor.
func (d *examination) askElsewhere(ctx context.Context, conn *pgx.Conn, f *pgFacts) error {
	rows, err := conn.Query(ctx, `SELECT r.rolname, split_part(c, '=', 1),
			substr(c, strpos(c, '=') + 1)
		FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) c
		WHERE r.rolname <> current_user AND r.rolcanlogin
		  AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
		  AND has_table_privilege(r.oid, coalesce(to_regclass($2), to_regclass($3)), 'INSERT')
		  AND split_part(c, '=', 1) = ANY ($1) ORDER BY 1, 2`,
		[]string{"synchronous_commit", "default_transaction_read_only"},
		pgschema.Table(d.in.Schema, "processed_events"),
		pgschema.Table(d.in.Schema, "processed_events_compact"))
	if err != nil {
		return err
	}
	f.elsewhere, err = pgx.CollectRows(rows,
		func(row pgx.CollectableRow) (e pgElsewhere, err error) {
			err = row.Scan(&e.role, &e.name, &e.value)
			return e, err
		})
	return err
}

func (d *examination) askTables(ctx context.Context, conn *pgx.Conn, f *pgFacts) error {
	var names []string
	for _, name := range pgTables {
		names = append(names, pgschema.Table(d.in.Schema, name))
	}
	rows, err := conn.Query(ctx, `SELECT relname, relpersistence = 'u', coalesce(reloptions, '{}')
		FROM pg_class WHERE oid IN (SELECT to_regclass(n)::oid FROM unnest($1::text[]) n)
		ORDER BY relname`, names)
	if err != nil {
		return err
	}
	f.tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t pgTable, err error) {
		var options []string
		err = row.Scan(&t.name, &t.unlogged, &options)
		t.autovacuum = !slices.ContainsFunc(options, func(o string) bool {
			value, found := strings.CutPrefix(o, "autovacuum_enabled=")
			off := []string{"false", "off", "no", "0", "f", "n"}
			return found && slices.Contains(off, strings.ToLower(value))
		})
		return t, err
	})
	return err
}

// askClock compares the server's clock with this host's.
func (d *examination) askClock(ctx context.Context, conn *pgx.Conn, f *pgFacts) (err error) {
	f.skew, f.within, err = compareClocks(d.in.Now, func() (at time.Time, err error) {
		err = conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at)
		return at, err
	})
	return err
}
