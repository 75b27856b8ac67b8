package matrix

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/idemtest"
)

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
	_, err = db.Exec("CREATE TABLE bookings (amount integer NOT NULL)")
	require.NoError(t, err)
	return &bank{Faults: f, store: s, db: db}
}

func (b *bank) state() any {
	var sum int
	err := b.db.QueryRow("SELECT coalesce(sum(amount), 0) FROM bookings").Scan(&sum)
	return map[string]any{"sum": sum, "err": err, "mails": b.mails}
}

// booking is a server with a handler that books an amount in the transaction of the request. With
// mail, the handler sends one inside the transaction.
func booking(t *testing.T, mail bool) func(dedup.Store, *bank) (http.Handler, func()) {
	t.Helper()
	return func(store dedup.Store, b *bank) (http.Handler, func()) {
		m, err := httpidem.NewTx[*sql.Tx](httpidem.Config{
			Store: store, Scope: "bank", Public: true, AnyPayload: true, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		return m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tx, ok := httpidem.TxFrom[*sql.Tx](r.Context())
			if !ok {
				panic("no transaction")
			}
			_, err := tx.ExecContext(r.Context(), "INSERT INTO bookings VALUES (5)")
			if err == nil && mail {
				err = b.Call(r.Context(), "send mail", func() { b.mails++ })
			}
			if err != nil {
				http.Error(w, "not booked", http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
		})), m.Close
	}
}

func bookingRequest() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":5}`))
	r.Header.Set("Idempotency-Key", "t-1")
	return r
}

// TestTortureHTTP_Tx: a handler with httpidem.NewTx leaves no outcome unknown. A mail inside the
// transaction leaves although the transaction is rolled back.
func TestTortureHTTP_Tx(t *testing.T) {
	store := idemtest.TxStore(func(b *bank) dedup.TxStore[*sql.Tx] { return b.store })
	t.Run("only the transaction", func(t *testing.T) {
		idemtest.TortureHTTP(t, newBank, booking(t, false), bookingRequest, (*bank).state, store, idemtest.Pairs(5))
	})
	t.Run("mail inside the transaction", func(t *testing.T) {
		text, broken := idemtest.SearchHTTP(t, newBank, booking(t, true), bookingRequest, (*bank).state, store, idemtest.Pairs(5))
		require.True(t, broken)
		require.Contains(t, text, `"send mail" for event "t-1" had its effect 2 times`)
	})
}
