package sqlite_test

import (
	"database/sql"
	_ "embed"
	"path/filepath"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/defertest"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/schema_1.sql
var schema1 string

// rule 4, T-06
func TestKeyOrder_Rule4(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	openStore(t, path)
	db := openDB(t, path)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE effects (name text NOT NULL)")
	require.NoError(t, err)
	defertest.KeyOrder(t, defertest.Site{
		Open:   func(t testing.TB) *sqlstore.Store { return openStore(t, path).(*sqlstore.Store) },
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
	path := filepath.Join(t.TempDir(), "idem.db")
	openStore(t, path)
	db, log := sqlrecord.Open(t, "sqlite", "file:"+path)
	defertest.Plans(t, defertest.PlanSite{
		DB: db, Log: log, Store: sqlstore.New(db, db, sqlite.Dialect()),
		Problems: defertest.SQLiteProblems, Analyze: "ANALYZE",
	})
}

// Rule 35: Open brings a file of version 1 up to date, and the file keeps its rows.
func TestMigrateFromVersion1_Rule35(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), schema1)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO idempotency_keys (tenant, scope, event_type,
		event_id, status, record_version, created_at, updated_at, expires_at, generation, retry,
		fence, uncertain, failures, takeovers)
		VALUES ('', 's', 't', 'old', 'done', 1, 1, 1, 9e15, 0, 0, 1, 0, 0, 0)`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	key := dedup.Key{Scope: "s", Type: "t", ID: "old"}
	part := dedup.DeferredPartition{Scope: "s", Topic: "t"}
	for range 2 {
		s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
		require.NoError(t, err)
		_, err = s.Check(t.Context())
		require.NoError(t, err)
		records, err := s.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Equal(t, dedup.Finished, records[0].State)
		require.NoError(t, s.Defer(t.Context(), part, []dedup.Deferred{{Key: key, Wait: time.Hour}}))
		require.NoError(t, s.Close())
	}
	var versions string
	require.NoError(t, openDB(t, path).QueryRowContext(t.Context(),
		"SELECT group_concat(version, ',') FROM (SELECT * FROM idem_schema ORDER BY version)").
		Scan(&versions))
	require.Equal(t, "1,2", versions)
}
