package sqlite_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/internal/endtest"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/stretchr/testify/require"
)

func openDB(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newTxStore(t testing.TB) dedup.TxStore[*sql.Tx] {
	t.Helper()
	s := newStore(t)
	_, err := openDB(t, pathOf(t, s)).ExecContext(t.Context(), "CREATE TABLE effects (name text NOT NULL)")
	require.NoError(t, err)
	return s.(dedup.TxStore[*sql.Tx])
}

func addEffect(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (?)", name)
	return err
}

func countEffects(t testing.TB, s dedup.TxStore[*sql.Tx], name string) (n int) {
	t.Helper()
	require.NoError(t, openDB(t, pathOf(t, s)).QueryRowContext(context.WithoutCancel(t.Context()),
		"SELECT count(*) FROM effects WHERE name = ?", name).Scan(&n))
	return n
}

func TestTxConformance(t *testing.T) {
	storetest.RunTx(t, storetest.TxHarness[*sql.Tx]{
		New: newTxStore, Exec: addEffect, Count: countEffects,
		Raw: func(ctx context.Context, tx *sql.Tx, text string) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		},
		Slow:    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 100000000) SELECT count(*) FROM r",
		Horizon: setHorizon,
		Missing: []storetest.Ability{storetest.StartCount, storetest.TxCheck, storetest.Savepoints,
			storetest.TxKeep, storetest.TxGoesOn, storetest.TxAborts, storetest.TxParallel},
	})
}

func TestOpenRowsAreFine(t *testing.T) {
	endtest.OpenRows(t, newTxStore(t), "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT n FROM r", true)
}
