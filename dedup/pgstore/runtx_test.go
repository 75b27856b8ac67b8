package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestRunTx(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pool := newStore(t, inMode(mode), maxConns(1)) // a leaked connection shows
			runTx(t, s, pool)
		})
	}
}

func runTx(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
	ctx := t.Context()
	why := errors.New("why")
	var kept pgx.Tx
	require.NoError(t, s.RunTx(ctx, 7*time.Second, func(tx pgx.Tx) error {
		kept = tx
		var idle, wait, level string
		require.NoError(t, tx.QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout'),
			current_setting('lock_timeout'), current_setting('transaction_isolation')`).Scan(&idle, &wait, &level))
		require.Equal(t, []string{"12s", "0", "read committed"}, []string{idle, wait, level})
		require.ErrorIs(t, tx.Commit(ctx), pgstore.ErrTxOwned)
		return addEffect(ctx, tx, "kept")
	}))
	require.Equal(t, 1, countEffects(t, pool, "kept"))
	require.ErrorIs(t, addEffect(ctx, kept, "late"), pgx.ErrTxClosed)
	gone := func(tx pgx.Tx) error { return addEffect(ctx, tx, "gone") }
	require.ErrorIs(t, s.RunTx(ctx, time.Second, func(tx pgx.Tx) error { return errors.Join(gone(tx), why) }), why)
	require.PanicsWithValue(t, "why", func() {
		_ = s.RunTx(ctx, time.Second, func(tx pgx.Tx) error { require.NoError(t, gone(tx)); panic("why") })
	})
	for _, sql := range []string{"ROLLBACK", "ROLLBACK; BEGIN", "COMMIT", "COMMIT; BEGIN"} { // P-13
		err := s.RunTx(ctx, time.Second, func(tx pgx.Tx) error {
			_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
			return err
		})
		require.ErrorIs(t, err, dedup.ErrTxEnded, sql)
	}
	require.ErrorIs(t, s.RunTx(ctx, time.Second, func(tx pgx.Tx) error { // P-12
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	}), dedup.ErrTxAborted)
	_ = s.RunTx(ctx, time.Second, func(tx pgx.Tx) error { return errors.Join(gone(tx), dedup.ErrAbandoned) })
	ended, cancel := context.WithCancel(ctx)
	require.Error(t, s.RunTx(ended, time.Second, func(tx pgx.Tx) error { cancel(); return addEffect(ended, tx, "gone") }))
	runs := 0
	err := s.RunTx(ctx, time.Second, func(tx pgx.Tx) error {
		runs++
		_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")
		return err
	})
	require.Error(t, err)
	require.Equal(t, 1, runs)
	require.Zero(t, countEffects(t, pool, "gone"))
	require.ErrorIs(t, downStore(t).(*pgstore.Store).RunTx(ctx, time.Second, func(pgx.Tx) error { return nil }),
		dedup.ErrUnavailable)
}
