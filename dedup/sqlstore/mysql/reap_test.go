package mysql_test

import (
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/reaptest"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
)

func TestReaper(t *testing.T) {
	reaptest.Run(t, func(t testing.TB) reaptest.Site {
		dsn := newTables(t)
		return reaptest.Site{Dialect: mysql.Dialect, DB: siteOf(open(t, dsn)).db,
			Open: func(t testing.TB, d *sqlstore.Dialect) *sqlstore.Store {
				return sqlstore.New(siteOf(open(t, dsn)).db, nil, d)
			}}
	})
}
