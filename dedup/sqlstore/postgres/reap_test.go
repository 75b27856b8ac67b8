package postgres_test

import (
	"database/sql"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/reaptest"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/internal/decision"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

func TestReaper(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			reaptest.Run(t, func(t testing.TB) reaptest.Site {
				url := newTables(t)
				db := siteOf(open(t, driver, url)).db
				return reaptest.Site{Dialect: postgres.Dialect, DB: db, Slow: func(t testing.TB) { slow(t, db) },
					Open: func(t testing.TB, d *sqlstore.Dialect) *sqlstore.Store {
						return sqlstore.New(siteOf(open(t, driver, url)).db, nil, d)
					}}
			})
		})
	}
}

// slow ends deletions of scope a with the code of a time-out.
func slow(t testing.TB, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF OLD.scope = 'a' THEN RAISE EXCEPTION 'slow' USING ERRCODE = 'query_canceled'; END IF;
			RETURN OLD;
		END $$;
		CREATE TRIGGER slow BEFORE DELETE ON processed_events FOR EACH ROW EXECUTE FUNCTION slow()`)
	require.NoError(t, err)
}

// The estimated cost of a scan that is off would make Postgres compile the statement.
func TestReaper_Jit(t *testing.T) {
	tx, err := siteOf(open(t, "pgx", newTables(t))).db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(t.Context(), "SET LOCAL jit = on")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), postgres.Dialect().Reap)
	require.NoError(t, err)
	var jit string
	require.NoError(t, tx.QueryRowContext(t.Context(), "SHOW jit").Scan(&jit))
	require.Equal(t, "off", jit)
}

// Rows that stay, more than a statement may read, do not stop the deletion of the rows behind them:
// the rows of a silent scope, and dead letters. No statement reads more rows than a window (rule 8).
func TestReaperReadsBoundedRows_Rule8(t *testing.T) {
	const due = 10
	db, log := sqlrecord.Open(t, "pgx", unusedTables(t)+"&"+postgres.Parameters)
	s := postgres.New(db)
	_, err := db.ExecContext(t.Context(), `INSERT INTO processed_events
			(tenant, scope, event_type, event_id, status, created_at, updated_at, expires_at)
		SELECT '', CASE WHEN i > 2 * $1 OR i % 2 = 0 THEN 'g' ELSE 'silent' END, 'x', i::text,
			CASE WHEN i > 2 * $1 THEN 'done' ELSE 'dead' END, now() - interval '9 days', now(),
			now() - interval '2 days' + i * interval '1 millisecond'
		FROM generate_series(1, 2 * $1 + $2) i`, decision.WindowRows, due)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "VACUUM ANALYZE processed_events")
	require.NoError(t, err)
	require.NoError(t, s.RecordProgress(t.Context(), "g",
		[]dedup.Progress{{Topic: "t", Next: 1, CaughtUp: true}}))
	cfg := sqlstore.ReaperConfig{Grace: time.Microsecond, Pause: -1}
	log.Take()
	var deleted int64
	for range 2 {
		result, err := sqlstore.NewReaper(s, cfg).RunOnce(t.Context())
		require.NoError(t, err)
		deleted += result.Events
	}
	require.EqualValues(t, due, deleted)
	looked := 0
	for _, st := range log.Take() {
		if strings.Contains(st.Text, "processed_events WHERE expires_at") ||
			strings.Contains(st.Text, "processed_events WHERE scope") {
			looked++
			require.LessOrEqual(t, rowsRead(t, db, st), decision.WindowRows, st.Text)
		}
	}
	require.Greater(t, looked, 2)

	r := sqlstore.NewReaper(s, cfg) // keeps running
	for run, most := range []int{100, 4} {
		log.Take()
		_, err := r.RunOnce(t.Context())
		require.NoError(t, err)
		looked := 0
		for _, st := range log.Take() {
			if strings.Contains(st.Text, "FROM processed_events WHERE expires_at") {
				looked++
			}
		}
		require.LessOrEqual(t, looked, most, "run %d", run)
	}
}

var planRows = regexp.MustCompile(`Index.* rows=(\d+)\D+loops=1\)(?:.*\n.*Index Cond.*\n.*` +
	`(?:Filter: .*\n.*)?Rows Removed by Filter: (\d+))?`)

// rowsRead returns how many rows st reads by an index, with the settings of a reaper.
func rowsRead(t *testing.T, db *sql.DB, st sqlrecord.Statement) (n int) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	for _, set := range []string{postgres.Dialect().Reap, postgres.Dialect().InOrder,
		"SET LOCAL max_parallel_workers_per_gather = 0"} {
		_, err = tx.ExecContext(t.Context(), set)
		require.NoError(t, err)
	}
	rows, err := tx.QueryContext(t.Context(), "EXPLAIN (ANALYZE, TIMING off, COSTS off) "+st.Text,
		st.Args...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var plan strings.Builder
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		plan.WriteString(line + "\n")
	}
	require.NoError(t, rows.Err())
	m := planRows.FindStringSubmatch(plan.String())
	require.NotNil(t, m, plan.String())
	for _, digits := range m[1:] {
		if digits != "" {
			part, err := strconv.Atoi(digits)
			require.NoError(t, err)
			n += part
		}
	}
	return n
}

// The reapers of both packages share a lease, horizons and progress: one moves the horizon, and the
// other one deletes.
func TestReapsBesidePgstore(t *testing.T) {
	url := newTables(t)
	mine, other := open(t, "pgx", url), openPgstore(t, url)
	db := siteOf(mine).db
	reapMine := func() (events int64, elsewhere bool) {
		result, err := sqlstore.NewReaper(mine, sqlstore.ReaperConfig{Grace: time.Microsecond}).RunOnce(t.Context())
		require.NoError(t, err)
		return result.Events, result.Elsewhere
	}
	reapOther := func() (events int64, elsewhere bool) {
		result, err := pgstore.NewReaper(other, pgstore.ReaperConfig{Grace: time.Microsecond}).RunOnce(t.Context())
		require.NoError(t, err)
		return result.Events, result.Elsewhere
	}
	for i, scope := range []string{"mine first", "other first"} {
		_, err := db.ExecContext(t.Context(), `INSERT INTO processed_events (tenant, scope, event_type, event_id, created_at, expires_at)
			SELECT '', $1, 'x', i::text, clock_timestamp() - interval '3 days', clock_timestamp() - interval '2 days'
			FROM generate_series(1, 50) i`, scope)
		require.NoError(t, err)
		p := []dedup.Progress{{Topic: "t", Next: 1, CaughtUp: true}}
		first, second := reapMine, reapOther
		if i == 1 {
			first, second = second, first
			require.NoError(t, mine.RecordProgress(t.Context(), scope, p))
		} else {
			require.NoError(t, other.RecordProgress(t.Context(), scope, p))
		}
		n, _ := first()
		require.Zero(t, n)
		n, _ = second()
		require.EqualValues(t, 50, n)
	}
	_, err := db.ExecContext(t.Context(), `INSERT INTO idem_leases VALUES ('reaper', gen_random_uuid(), clock_timestamp() + interval '1 hour')`)
	require.NoError(t, err)
	for _, reap := range []func() (int64, bool){reapMine, reapOther} {
		_, elsewhere := reap()
		require.True(t, elsewhere)
	}
	// Each package knows the registrations of the other.
	r := dedup.Registration{Scope: "g", Group: "g", Topics: []string{"t"}, Descriptors: map[string]string{"a": "1"}}
	require.NoError(t, mine.Register(t.Context(), r))
	r.Descriptors["a"] = "2"
	require.ErrorIs(t, other.Register(t.Context(), r), dedup.ErrIdentityChanged)
}
