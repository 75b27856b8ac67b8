package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/pgschema"
)

// pgFacts are what a server says of itself, in the session of a worker.
type pgFacts struct {
	role, database string
	standby        bool
	direct         bool                 // the session is the server's own, no pooler's
	given          bool                 // it is a session of a worker's own pool
	refused        bool                 // a pooler refused the parameters of pgstore.Configure
	local          bool                 // no TCP
	settings       map[string]pgSetting // of this session
	elsewhere      []pgElsewhere        // of other roles in this database
	tables         []pgTable
	replicas       int // standbys that stream from here
	synchronous    int // of them, those a commit waits for
	roleLimit      int // connections; -1: none
	databaseLimit  int
	others         int // connections of other roles
	skew, within   time.Duration
}

// pgSetting is one row of pg_settings, in its base unit.
type pgSetting struct{ value, source string }

// pgElsewhere is a setting of a role that is not the one asked.
type pgElsewhere struct{ role, name, value string }

type pgTable struct {
	name       string
	unlogged   bool
	autovacuum bool
}

// unnamed is a database whose name is not to be shown.
const unnamed = "postgres"

// away says that a store does not answer.
func (d *examination) away(r *Findings, on string, err error) {
	detail := d.text(err)
	if on == unnamed {
		detail = "it cannot be reached, and its name has an '@' (the error is not shown, it may hold a part of a password)"
	}
	r.say(Bad, "postgres.connect", on, detail, "")
}

// postgresName names a database, without credentials. A host or a name with an '@' is a part of a URL that was not read as it
// was meant: it may have a part of the password.
func postgresName(c *pgconn.Config) string {
	if strings.Contains(c.Host+c.Database, "@") {
		return unnamed
	}
	return fmt.Sprintf("postgres %s:%d/%s", c.Host, c.Port, c.Database)
}

func (d *examination) checkPostgres(ctx context.Context, r *Findings, l *Store) {
	cfg, err := l.config()
	if err != nil {
		return // checkSettings has said so
	}
	on := postgresName(&cfg.ConnConfig.Config)
	pool, refused := l.Pool, false
	if pool == nil {
		if pool, refused, err = openAsWorker(ctx, l.URL); err != nil {
			d.away(r, on, err)
			return
		}
		defer pool.Close()
	}
	f, err := d.askPostgres(ctx, pool)
	if err != nil {
		d.away(r, on, err)
		return
	}
	f.refused, f.given = refused, l.Pool != nil
	r.say(OK, "postgres.connect", on, fmt.Sprintf("as %s", f.role), "")
	var own Findings
	d.checkPostgresFacts(&own, on, f, d.poolOf(cfg))
	warnings, err := d.checkStore(ctx, pool)
	d.checkTables(r, on, own, f, warnings, err)
	*r = append(*r, own...)
	d.checkOutbox(ctx, r, on, f.role, pool)
	if err := d.readScopes(ctx, pool); err != nil && err.code != "42P01" { // no tables has been said
		r.say(Unknown, "store.scope", on, d.text(err), grant(f.role))
	}
}

// openAsWorker connects as pgstore.Open does, or without its parameters if a pooler refuses them.
func openAsWorker(ctx context.Context, url string) (pool *pgxpool.Pool, refused bool, err error) {
	for _, refused = range []bool{false, true} {
		var cfg *pgxpool.Config
		if cfg, err = pgxpool.ParseConfig(url); err != nil {
			return nil, false, err
		}
		cfg.MaxConns = 2 // for a moment: the workers need theirs
		if !refused {
			pgstore.Configure(cfg)
		} else {
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
		if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
			return nil, false, err
		}
		if err = pool.Ping(ctx); err == nil {
			return pool, refused, nil
		}
		pool.Close()
		if pgschema.Code(err) != "08P01" { // protocol violation: "unsupported startup parameter"
			return nil, false, err
		}
	}
	return nil, false, err
}

// checkStore lets the store look at itself as it does at the start of a worker, in the layout its tables have.
func (d *examination) checkStore(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	var opts []pgstore.Option
	if d.in.Schema != "" {
		opts = append(opts, pgstore.InSchema(d.in.Schema))
	}
	if tables, err := pgschema.FindTables(ctx, pool, d.in.Schema); err == nil && tables.Layout == "compact" {
		opts = append(opts, pgstore.Compact())
	}
	return pgstore.New(pool, opts...).Check(ctx)
}

// checkTables says what the store's own check found and none of ours has said already. Its warnings are about fsync and
// full_page_writes, synchronous_commit, and two settings of sessions, which have checks of their own here.
func (d *examination) checkTables(r *Findings, on string, own Findings, f *pgFacts, warnings []string, err error) {
	const id = "postgres.store"
	said := 0
	for _, f := range own {
		switch f.ID {
		case "postgres.fsync", "postgres.commit", "postgres.session":
			if f.Verdict != OK {
				said += strings.Count(f.Detail, ";") + 1
			}
		case "postgres.standby", "postgres.read_only":
			if f.Verdict == Bad && err != nil {
				r.say(Skipped, id, on, "cannot be tested while nothing can be written", "")
				return
			}
		}
	}
	switch code := pgschema.Code(err); {
	case code == pgschema.NoRight:
		r.say(Unknown, id, on, "not known: "+d.text(err), grant(f.role))
	case err != nil && len(f.tables) == 0:
		r.say(Bad, id, on, "the tables are not there, or not in the search path of the URL: "+d.text(err), "IDEM_STORE=<url> idem migrate up")
	case err != nil:
		r.say(Bad, id, on, d.text(err), "")
	case len(warnings) > said:
		r.say(Warn, id, on, strings.Join(warnings, "; "), "")
	default:
		r.say(OK, id, on, "tables, versions, unique keys and collations are as they must be", "")
	}
}

// grant is what a role needs at least, and the doctor with it.
func grant(role string) string {
	return "GRANT SELECT, INSERT, UPDATE ON processed_events, idempotency_keys, idem_scopes, idem_scope_topics, idem_recipes TO " + ident(role) +
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON event_starts, idem_progress TO " + ident(role) +
		"; GRANT SELECT ON idem_schema, idem_horizons TO " + ident(role)
}

func ident(name string) string { return pgx.Identifier{name}.Sanitize() }

// pgSettingNames are those that checks look at.
var pgSettingNames = []string{
	"fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "default_transaction_read_only",
	"client_connection_check_interval", "tcp_keepalives_idle", "idle_in_transaction_session_timeout", "transaction_timeout",
	"statement_timeout", "lock_timeout", "max_connections", "superuser_reserved_connections", "reserved_connections",
	"autovacuum", "track_counts",
}

// pgTables are those of either layout that change.
var pgTables = []string{
	"processed_events", "idempotency_keys", "processed_events_compact", "idempotency_keys_compact", "idem_kinds", "idem_origins",
	"event_starts", "idem_progress", "idem_horizons", "idem_scopes", "idem_scope_topics", "idem_recipes",
}

// askPostgres asks on one connection.
func (d *examination) askPostgres(ctx context.Context, pool *pgxpool.Pool) (*pgFacts, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	f := &pgFacts{}
	var pid uint32
	err = conn.QueryRow(ctx, `SELECT current_user, current_database(), pg_is_in_recovery(), pg_backend_pid(), inet_client_addr() IS NULL,
			(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename <> current_user)::int,
			(SELECT count(*) FROM pg_stat_replication)::int,
			(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))::int`).
		Scan(&f.role, &f.database, &f.standby, &pid, &f.local, &f.roleLimit, &f.databaseLimit, &f.others, &f.replicas, &f.synchronous)
	if err != nil {
		return nil, err
	}
	f.direct = pid == conn.Conn().PgConn().PID()
	for _, ask := range []func(context.Context, *pgx.Conn, *pgFacts) error{askSettings, d.askElsewhere, d.askTables, d.askClock} {
		if err := ask(ctx, conn.Conn(), f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func askSettings(ctx context.Context, conn *pgx.Conn, f *pgFacts) error {
	rows, err := conn.Query(ctx, "SELECT name, setting, source FROM pg_settings WHERE name = ANY ($1)", pgSettingNames)
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

// askElsewhere asks for settings that other roles get in this database if they may write the store: the workers may have
// another role than the doctor.
func (d *examination) askElsewhere(ctx context.Context, conn *pgx.Conn, f *pgFacts) error {
	rows, err := conn.Query(ctx, `SELECT r.rolname, split_part(c, '=', 1), substr(c, strpos(c, '=') + 1)
		FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole, unnest(s.setconfig) c
		WHERE r.rolname <> current_user AND r.rolcanlogin
		  AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
		  AND has_table_privilege(r.oid, coalesce(to_regclass($2), to_regclass($3)), 'INSERT')
		  AND split_part(c, '=', 1) = ANY ($1) ORDER BY 1, 2`, []string{"synchronous_commit", "default_transaction_read_only"},
		pgschema.Table(d.in.Schema, "processed_events"), pgschema.Table(d.in.Schema, "processed_events_compact"))
	if err != nil {
		return err
	}
	f.elsewhere, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (e pgElsewhere, err error) {
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
		FROM pg_class WHERE oid IN (SELECT to_regclass(n)::oid FROM unnest($1::text[]) n) ORDER BY relname`, names)
	if err != nil {
		return err
	}
	f.tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t pgTable, err error) {
		var options []string
		err = row.Scan(&t.name, &t.unlogged, &options)
		t.autovacuum = !slices.ContainsFunc(options, func(o string) bool {
			value, found := strings.CutPrefix(o, "autovacuum_enabled=")
			return found && slices.Contains([]string{"false", "off", "no", "0", "f", "n"}, strings.ToLower(value))
		})
		return t, err
	})
	return err
}

// askClock compares the server's clock with ours.
func (d *examination) askClock(ctx context.Context, conn *pgx.Conn, f *pgFacts) (err error) {
	f.skew, f.within, err = d.compareClocks(func() (at time.Time, err error) {
		err = conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at)
		return at, err
	})
	return err
}

// compareClocks asks another clock several times and takes the quickest answer: half its round trip is how wrong it may be.
func (d *examination) compareClocks(ask func() (time.Time, error)) (skew, within time.Duration, err error) {
	for try := range 5 {
		began := d.in.Now()
		at, err := ask()
		if err != nil {
			return 0, 0, err
		}
		half := d.in.Now().Sub(began) / 2
		if try == 0 || half < within {
			skew, within = at.Sub(began.Add(half)), half
		}
	}
	return skew, within, nil
}
