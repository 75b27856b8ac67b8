package endtest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// SlowCommit loses the connection of a handler while the server executes the statement commit, which
// sleeps before it commits. The query self returns the number of a session, and the query asleep
// counts the sleeping sessions with a number.
func SlowCommit(t *testing.T, s dedup.TxStore[*sql.Tx], db *sql.DB, commit, self, asleep string) {
	t.Helper()
	_ = Group(t, s, true, func(tx *sql.Tx) error {
		var session int
		require.NoError(t, tx.QueryRowContext(t.Context(), self).Scan(&session))
		require.NoError(t, All(t, tx, "INSERT INTO effects VALUES ('slow')"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := make(chan error, 1)
		go func() {
			_, err := tx.ExecContext(ctx, commit)
			failed <- err
		}()
		require.Eventually(t, func() bool {
			var n int
			err := db.QueryRowContext(t.Context(), asleep, session).Scan(&n)
			return err == nil && n == 1
		}, 30*time.Second, 5*time.Millisecond, "no COMMIT begins")
		cancel()
		return errors.Join(<-failed, ctx.Err()) // lib/pq keeps the connection
	})
}
