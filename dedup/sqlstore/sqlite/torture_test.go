package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/idemtest"
)

type order struct {
	Amount int `json:"amount"`
}

// ledger is a world in SQLite.
type ledger struct {
	*idemtest.Faults
	store *sqlstore.Store
	db    *sql.DB
}

func newLedger(t testing.TB, f *idemtest.Faults) *ledger {
	t.Helper()
	path := filepath.Join(t.TempDir(), "idem.db")
	s, err := sqlite.Open(context.Background(), path, sqlite.NoReaper())
	require.NoError(t, err)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(db.Close(), s.Close())) })
	_, err = db.Exec("CREATE TABLE balances (name text PRIMARY KEY, amount integer NOT NULL)")
	require.NoError(t, err)
	return &ledger{Faults: f, store: s, db: db}
}

func (l *ledger) state() any {
	var sum int
	err := l.db.QueryRow("SELECT coalesce(sum(amount), 0) FROM balances").Scan(&sum)
	return map[string]any{"sum": sum, "err": err}
}

func (l *ledger) add(ctx context.Context, tx *sql.Tx, e idem.Event[order]) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO balances VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount`, e.Message.Key, e.Data.Amount)
	return err
}

func TestTortureTx(t *testing.T) {
	idemtest.Torture(t, newLedger, func(r *idem.Router, l *ledger) {
		idem.OnTx(r, "paid", l.add)
	}, (*ledger).state,
		idemtest.TxStore(func(l *ledger) dedup.TxStore[*sql.Tx] { return l.store }),
		idemtest.Records(
			idemtest.Record{ID: "p-1", Type: "paid", Key: "ann", Value: order{1}},
			idemtest.Record{ID: "p-2", Type: "paid", Key: "ann", Value: order{2}},
			idemtest.Record{ID: "p-3", Type: "paid", Key: "bob", Value: order{4}},
		), idemtest.Pairs(20))
}

