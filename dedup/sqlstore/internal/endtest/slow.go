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

// Slow is a COMMIT as SQL that takes a second.
type Slow struct {
	// Commit is a statement that sleeps before it commits, after an INSERT into effects.
	Commit string
	// Self is a query for the number of a session.
	Self string
	// Asleep is a query that counts the sleeping sessions with a number.
	Asleep string
}

// begin sends the COMMIT, and returns while the server executes it. The result gets its error.
func (c *Slow) begin(ctx context.Context, t *testing.T, db *sql.DB, tx *sql.Tx) <-chan error {
	t.Helper()
	var session int
	require.NoError(t, tx.QueryRowContext(t.Context(), c.Self).Scan(&session))
	require.NoError(t, All(t, tx, "INSERT INTO effects VALUES ('slow')"))
	failed := make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(ctx, c.Commit)
		failed <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		err := db.QueryRowContext(t.Context(), c.Asleep, session).Scan(&n)
		return err == nil && n == 1
	}, 30*time.Second, 5*time.Millisecond, "no COMMIT begins")
	return failed
}

// Lost loses the connection of a handler during its COMMIT.
func (c *Slow) Lost(t *testing.T, s dedup.TxStore[*sql.Tx], db *sql.DB) {
	t.Helper()
	_ = Group(t, s, true, func(tx *sql.Tx) error { return c.lose(t, db, tx) })
}

// LostAndRolledBack is Lost for a handler that then calls Rollback, and returns its error too. The
// engine takes this error for the end of the transaction.
func (c *Slow) LostAndRolledBack(t *testing.T, s dedup.TxStore[*sql.Tx], db *sql.DB) {
	t.Helper()
	_ = claimGroup(t, s, true, func(tx *sql.Tx) error {
		err := errors.Join(c.lose(t, db, tx), tx.Rollback())
		require.ErrorIs(t, err, dedup.ErrTxEnded)
		return &dedup.TxEndedError{Unrun: []int{1, 2}}
	})
	requireAnswers(t, s, true)
}

// lose loses the connection of tx during a COMMIT.
func (c *Slow) lose(t *testing.T, db *sql.DB, tx *sql.Tx) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := c.begin(ctx, t, db, tx)
	cancel()
	return errors.Join(<-failed, ctx.Err()) // lib/pq keeps the connection
}

// Abandoned abandons a handler during its COMMIT, as the engine does.
func (c *Slow) Abandoned(t *testing.T, s dedup.TxStore[*sql.Tx], db *sql.DB) {
	t.Helper()
	var ended <-chan error
	err := claimGroup(t, s, true, func(tx *sql.Tx) error {
		ended = c.begin(context.Background(), t, db, tx)
		return &dedup.GroupError{Unrun: []int{1, 2}, Err: dedup.ErrAbandoned}
	})
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.NotErrorIs(t, <-ended, sql.ErrTxDone, "the COMMIT has begun") // lib/pq has an answer
	requireAnswers(t, s, true)
}
