package postgres_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/defertest"
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
