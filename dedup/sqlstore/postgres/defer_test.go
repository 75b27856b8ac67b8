package postgres_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/defertest"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

// rule 4, T-06
func TestKeyOrder_Rule4(t *testing.T) {
	url := newTables(t)
	db := siteOf(open(t, "pgx", url)).db
	defertest.KeyOrder(t, defertest.Site{
		Open:   func(t testing.TB) *sqlstore.Store { return open(t, "pgx", url) },
		Insert: "INSERT INTO effects VALUES ($1)",
		Count: func(t testing.TB) (all, distinct int) {
			require.NoError(t, db.QueryRowContext(t.Context(),
				"SELECT count(*), count(DISTINCT name) FROM effects").Scan(&all, &distinct))
			return all, distinct
		},
	})
}

// Rule 4. The plans hold without statistics too: autovacuum looks at a table that has grown later.
func TestPlans_Rule4(t *testing.T) {
	db, log := sqlrecord.Open(t, "pgx", unusedTables(t)+"&"+postgres.Parameters)
	for _, table := range []string{"deferred_queues", "deferred_events"} {
		_, err := db.ExecContext(t.Context(),
			"ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
		require.NoError(t, err)
	}
	defertest.Plans(t, defertest.PlanSite{
		DB: db, Log: log, Store: postgres.New(db), Problems: defertest.PostgresProblems,
		Analyze: "ANALYZE deferred_queues, deferred_events",
	})
}
