package postgres_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/reaptest"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
)

func TestReaper(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			reaptest.Run(t, func(t testing.TB) reaptest.Site {
				url := newTables(t)
				return reaptest.Site{Dialect: postgres.Dialect, DB: siteOf(open(t, driver, url)).db,
					Open: func(t testing.TB, d *sqlstore.Dialect) *sqlstore.Store {
						return sqlstore.New(siteOf(open(t, driver, url)).db, nil, d)
					}}
			})
		})
	}
}
