package mysql_test

import (
	"database/sql"
	_ "embed"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/defertest"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/schema_1.sql
var schema1 string

// rule 4, T-06
func TestKeyOrder_Rule4(t *testing.T) {
	dsn := newTables(t)
	db := siteOf(open(t, dsn)).db
	defertest.KeyOrder(t, defertest.Site{
		Open:   func(t testing.TB) *sqlstore.Store { return open(t, dsn) },
		Insert: "INSERT INTO effects VALUES (?)",
		Count: func(t testing.TB) (all, distinct int) {
			require.NoError(t, db.QueryRowContext(t.Context(),
				"SELECT count(*), count(DISTINCT name) FROM effects").Scan(&all, &distinct))
			return all, distinct
		},
	})
}

// rule 4
func TestPlans_Rule4(t *testing.T) {
	db, log := sqlrecord.Open(t, "mysql", newTables(t))
	defertest.Plans(t, defertest.PlanSite{
		DB: db, Log: log, Store: mysql.New(db), Problems: defertest.MariaDBProblems,
		Analyze: "ANALYZE TABLE deferred_queues, deferred_events",
	})
}

// Rule 35: Migrate brings tables of version 1 up to date, and the tables keep their rows. Without
// Migrate, Check names the call to make.
func TestMigrateFromVersion1_Rule35(t *testing.T) {
	dsn := newTables(t)
	s := open(t, dsn)
	db := siteOf(s).db
	ctx := t.Context()
	dropAll(t, db)
	for text := range strings.SplitSeq(schema1, ";\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		_, err := db.ExecContext(ctx, text)
		require.NoError(t, err, text)
	}
	_, err := db.ExecContext(ctx, `INSERT INTO idempotency_keys (tenant, scope, event_type,
		event_id, status, record_version, created_at, updated_at, expires_at, generation, retry,
		fence, uncertain, failures, takeovers)
		VALUES ('', 's', 't', 'old', 'done', 1, now(), now(), '2100-01-01', 0, 0, 1, 0, 0, 0)`)
	require.NoError(t, err)
	_, err = s.Check(ctx)
	var setup *dedup.SetupError
	require.ErrorAs(t, err, &setup)
	require.Contains(t, setup.Fix, "mysql.Migrate")
	key := dedup.Key{Scope: "s", Type: "t", ID: "old"}
	part := dedup.DeferredPartition{Scope: "s", Topic: "t"}
	event := dedup.Deferred{Key: key, Wait: time.Hour}
	require.ErrorIs(t, s.Defer(ctx, part, []dedup.Deferred{event}), dedup.ErrUnavailable)
	for range 2 {
		require.NoError(t, mysql.Migrate(ctx, db))
	}
	_, err = s.Check(ctx)
	require.NoError(t, err)
	records, err := s.Inspect(ctx, key)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, dedup.Finished, records[0].State)
	require.NoError(t, s.Defer(ctx, part, []dedup.Deferred{event}))
	var versions string
	require.NoError(t, db.QueryRowContext(ctx,
		"SELECT group_concat(version ORDER BY version) FROM idem_schema").Scan(&versions))
	require.Equal(t, "1,2", versions)
}

// dropAll drops the tables of the store.
func dropAll(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, text := range strings.Split(mysql.Schema(), "CREATE TABLE IF NOT EXISTS ")[1:] {
		name, _, _ := strings.Cut(text, " ")
		_, err := db.ExecContext(t.Context(), "DROP TABLE "+name)
		require.NoError(t, err)
	}
}
