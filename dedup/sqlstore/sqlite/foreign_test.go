package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

// A table of the application with the name of one of the store's is not taken for the store's.
func TestOpen_TableOfAnotherProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("CREATE TABLE processed_events (id text PRIMARY KEY)")
	require.NoError(t, err)
	_, err = sqlite.Open(t.Context(), path)
	var setup *dedup.SetupError
	require.ErrorAs(t, err, &setup)
	require.ErrorContains(t, err, "the database has processed_events of another program: choose another file")
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM sqlite_master WHERE type = 'table'").Scan(&n))
	require.Equal(t, 1, n, "no table was added")
	require.Equal(t, "delete", journalMode(t, path), "the file of another program stays as it is")
	_, err = db.Exec("ALTER TABLE processed_events RENAME TO handled")
	require.NoError(t, err)
	for range 2 {
		s, err := sqlite.Open(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	require.Equal(t, "wal", journalMode(t, path))
}

func journalMode(t *testing.T, path string) (mode string) {
	t.Helper()
	require.NoError(t, openDB(t, path).QueryRow("PRAGMA journal_mode").Scan(&mode))
	return mode
}
