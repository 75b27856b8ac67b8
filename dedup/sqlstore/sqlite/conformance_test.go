package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

// paths are the files of the stores.
var paths sync.Map

func newStore(t testing.TB) dedup.Store {
	t.Helper()
	return openStore(t, filepath.Join(t.TempDir(), "idem.db"))
}

func openStore(t testing.TB, path string) dedup.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper()) // it would write, and NoWait would be Busy
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	paths.Store(s, path)
	return s
}

func pathOf(t testing.TB, s dedup.Store) string {
	t.Helper()
	path, ok := paths.Load(s)
	require.True(t, ok)
	return path.(string)
}

func setHorizon(t testing.TB, s dedup.Store, scope string, before time.Time) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+pathOf(t, s)+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "INSERT OR REPLACE INTO idem_horizons (scope, before) VALUES (?, ?)",
		scope, before.UnixMicro())
	require.NoError(t, err)
}

func harness() storetest.Harness {
	return storetest.Harness{
		New:     newStore,
		Peer:    func(t testing.TB, s dedup.Store) dedup.Store { return openStore(t, pathOf(t, s)) },
		Horizon: setHorizon,
		Missing: []storetest.Ability{storetest.Outage},
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, harness()) }

func TestDeferrerConformance_Rule4(t *testing.T) { storetest.RunDeferrer(t, harness()) }

func TestOperatorConformance(t *testing.T) { storetest.RunOperator(t, harness()) }
