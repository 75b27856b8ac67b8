package postgres_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/reaptest"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
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

// The reapers of both packages share a lease, horizons and progress: one moves the horizon, and the other one deletes.
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
