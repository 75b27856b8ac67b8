package endtest

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// HeldRow ends the session of a handler that has committed. Another transaction holds the row of
// its event meanwhile, like a worker that has claimed a group with a copy. The statement end ends
// the session.
func HeldRow(t *testing.T, s dedup.TxStore[*sql.Tx], db *sql.DB, end string) {
	t.Helper()
	other, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	_ = claimGroup(t, s, true, func(tx *sql.Tx) error {
		require.NoError(t, All(t, tx, "COMMIT"))
		var id string
		require.NoError(t, other.QueryRowContext(t.Context(), "SELECT event_id FROM processed_events "+
			"WHERE tenant = '' AND scope = 'group' AND event_type = 't' AND event_id = 'a' FOR UPDATE").Scan(&id))
		return &dedup.GroupError{Unrun: []int{1, 2}, Err: All(t, tx, end)}
	})
	require.NoError(t, other.Rollback())
	requireAnswers(t, s, true)
}
