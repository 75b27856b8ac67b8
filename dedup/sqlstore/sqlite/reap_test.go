package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/reaptest"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/stretchr/testify/require"
)

func newSite(t testing.TB) reaptest.Site {
	t.Helper()
	path := filepath.Join(t.TempDir(), "idem.db")
	s := reaptest.Site{Dialect: sqlite.Dialect,
		Open: func(t testing.TB, d *sqlstore.Dialect) *sqlstore.Store {
			s, err := sqlite.OpenWith(t.Context(), path, d)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}}
	s.Open(t, s.Dialect())
	s.DB = openDB(t, path)
	return s
}

func TestReaper(t *testing.T) { reaptest.Run(t, newSite) }
