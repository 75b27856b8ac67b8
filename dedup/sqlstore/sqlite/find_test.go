package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/findtest"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

func TestFindOfManyKinds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	openStore(t, path)
	db, log := sqlrecord.Open(t, "sqlite", "file:"+path)
	findtest.Walk(t, sqlstore.New(db, db, sqlite.Dialect()), log)
}

// A comparison of whole rows begins at the first row of the last kind, and reads all rows of this
// kind.
func TestFindSkipsTheRowsOfAKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	openStore(t, path)
	db, log := sqlrecord.Open(t, "sqlite", "file:"+path)
	_, err := sqlstore.New(db, db, sqlite.Dialect()).Find(t.Context(), "", "x")
	require.NoError(t, err)
	for _, s := range log.Take() {
		searches := 0
		for _, step := range plan(t, db, s) {
			require.NotContains(t, step, ")>(")
			if strings.Contains(step, "event_type>?") {
				searches++
			}
		}
		require.Equal(t, 1, searches, s.Text)
	}
}

// plan returns the steps of the plan of a statement.
func plan(t *testing.T, db *sql.DB, s sqlrecord.Statement) (steps []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+s.Text, s.Args...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var id, parent, unused int
		var step string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &step))
		steps = append(steps, step)
	}
	require.NoError(t, rows.Err())
	return steps
}
