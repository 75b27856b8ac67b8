package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

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

// bank is a world in SQLite.
type bank struct {
	*idemtest.Faults
	store *sqlstore.Store
	db    *sql.DB
	mails int
}

func newBank(t testing.TB, f *idemtest.Faults) *bank {
	t.Helper()
	path := filepath.Join(t.TempDir(), "idem.db")
	s, err := sqlite.Open(context.Background(), path, sqlite.NoReaper())
	require.NoError(t, err)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(db.Close(), s.Close())) })
	_, err = db.Exec("CREATE TABLE balances (name text PRIMARY KEY, amount integer NOT NULL)")
	require.NoError(t, err)
	return &bank{Faults: f, store: s, db: db}
}

func (l *bank) state() any {
	var sum int
	err := l.db.QueryRow("SELECT coalesce(sum(amount), 0) FROM balances").Scan(&sum)
	return map[string]any{"sum": sum, "err": err, "mails": l.mails}
}

func (l *bank) add(ctx context.Context, tx *sql.Tx, e idem.Event[order]) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO balances VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET amount = amount + excluded.amount`, e.Message.Key, e.Data.Amount)
	return err
}

func orders() []idemtest.TortureOption {
	return []idemtest.TortureOption{
		idemtest.TxStore(func(l *bank) dedup.TxStore[*sql.Tx] { return l.store }),
		idemtest.Records(
			idemtest.Record{ID: "p-1", Type: "paid", Key: "ann", Value: order{1}},
			idemtest.Record{ID: "p-2", Type: "paid", Key: "ann", Value: order{2}},
			idemtest.Record{ID: "p-3", Type: "paid", Key: "bob", Value: order{4}},
		),
		idemtest.Pairs(20),
	}
}

// A transactional handler survives every fault. One that sends mail inside the transaction does not:
// the mail leaves, and the transaction is rolled back.
func TestTortureTx(t *testing.T) {
	t.Run("only the transaction", func(t *testing.T) {
		idemtest.Torture(t, newBank, func(r *idem.Router, l *bank) {
			idem.OnTx(r, "paid", l.add)
		}, (*bank).state, orders()...)
	})
	t.Run("mail inside the transaction", func(t *testing.T) {
		text, broken := idemtest.Search(t, newBank, func(r *idem.Router, l *bank) {
			idem.OnTx(r, "paid", func(ctx context.Context, tx *sql.Tx, e idem.Event[order]) error {
				if err := l.Call(ctx, "send mail", func() { l.mails++ }); err != nil {
					return err
				}
				return l.add(ctx, tx, e)
			})
		}, (*bank).state, orders()...)
		t.Log(text)
		require.True(t, broken)
		require.Contains(t, text, `"send mail" for event "p-1" had its effect 2 times`)
	})
}

func transfer(ctx context.Context, g *dedup.Guard, l *bank) (order, bool, error) {
	return dedup.DoTx(ctx, g, dedup.Key{Scope: "bank", Type: "transfer", ID: "t-1"}, time.Minute,
		func(ctx context.Context, tx *sql.Tx) (order, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO balances VALUES ('ann', 5)")
			return order{5}, err
		})
}

// A function with DoTx leaves no outcome unknown.
func TestTortureDoTx(t *testing.T) {
	store := idemtest.TxStore(func(l *bank) dedup.TxStore[*sql.Tx] { return l.store })
	t.Run("only the transaction", func(t *testing.T) {
		idemtest.TortureDo(t, newBank, transfer, (*bank).state, store, idemtest.Pairs(5))
	})
	// Each pause takes the time of a lease. The caller has time left after both.
	t.Run("two pauses inside the claim", func(t *testing.T) {
		idemtest.TortureDo(t, newBank, transfer, (*bank).state, store, idemtest.Only("2:freeze 4:freeze"))
	})
	t.Run("mail inside the transaction", func(t *testing.T) {
		text, broken := idemtest.SearchDo(t, newBank, func(ctx context.Context, g *dedup.Guard, l *bank) (order, bool, error) {
			return dedup.DoTx(ctx, g, dedup.Key{Scope: "bank", Type: "transfer", ID: "t-1"}, time.Minute,
				func(ctx context.Context, _ *sql.Tx) (order, error) {
					return order{5}, l.Call(ctx, "send mail", func() { l.mails++ })
				})
		}, (*bank).state, store, idemtest.Pairs(5))
		require.True(t, broken)
		require.Contains(t, text, `"send mail" for event "t-1" had its effect 2 times`)
	})
}
