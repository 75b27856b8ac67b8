package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/stretchr/testify/require"
)

// A file opens, and its records can be read, while the transaction of a handler has the only write
// lock.
func TestOpenBesideAHandler(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	reqs := []dedup.Request{{Key: dedup.Key{Scope: "g", Type: "x", ID: "1"}, Retention: time.Hour}}
	err = s.ClaimTx(t.Context(), time.Minute, reqs, make([]dedup.Answer, 1), func(tx *sql.Tx) ([]dedup.Completion, error) {
		peer, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
		require.NoError(t, err)
		records, err := peer.Inspect(t.Context(), reqs[0].Key)
		require.NoError(t, err)
		require.Empty(t, records, "the transaction is open")
		require.NoError(t, peer.Close())
		return []dedup.Completion{{Claim: dedup.Claim{Key: reqs[0].Key}, Retention: time.Hour}}, nil
	})
	require.NoError(t, err)
}

// Open makes each missing part of a file, also if the rest is there.
func TestOpenMakesMissingParts(t *testing.T) {
	for name, remove := range map[string]string{
		"a table":   "DROP TABLE deferred_events",
		"an index":  "DROP INDEX deferred_queues_partition",
		"a unique":  "DROP INDEX deferred_events_identity",
		"a version": "UPDATE idem_schema SET version = 1",
		"no row":    "DELETE FROM idem_schema",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "idem.db")
			parts := func(change string) (all []string) {
				s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
				require.NoError(t, err)
				require.NoError(t, s.Close())
				db := openDB(t, path)
				_, err = db.ExecContext(t.Context(), change)
				require.NoError(t, err)
				rows, err := db.QueryContext(t.Context(), "SELECT name FROM sqlite_master UNION ALL "+
					"SELECT coalesce(max(version), 0) FROM idem_schema ORDER BY 1")
				require.NoError(t, err)
				defer rows.Close()
				for rows.Next() {
					var name string
					require.NoError(t, rows.Scan(&name))
					all = append(all, name)
				}
				require.NoError(t, rows.Err())
				return all
			}
			whole := parts("SELECT 1")
			require.NotEqual(t, whole, parts(remove))
			require.Equal(t, whole, parts("SELECT 1"))
		})
	}
}
