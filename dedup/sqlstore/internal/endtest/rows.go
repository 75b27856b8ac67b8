package endtest

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// OpenRows runs handlers that leave the rows of query open, or execute a statement meanwhile. That
// is the handler's fault, and the database is well. rows reports whether the database can do so.
func OpenRows(t *testing.T, s dedup.TxStore[*sql.Tx], query string, rows bool) {
	t.Helper()
	boom := errors.New("boom")
	open := func(tx *sql.Tx) *sql.Rows {
		r, err := tx.QueryContext(t.Context(), query)
		require.NoError(t, err)
		require.True(t, r.Next())
		require.NoError(t, r.Err())
		return r
	}
	for name, handler := range map[string]func(*sql.Tx) error{
		"returns": func(tx *sql.Tx) error { return open(tx).Err() },                    //nolint:sqlclosecheck // left open on purpose
		"fails":   func(tx *sql.Tx) error { return errors.Join(open(tx).Err(), boom) }, //nolint:sqlclosecheck // left open on purpose
		"goes on": func(tx *sql.Tx) error {
			r := open(tx)
			defer r.Close()
			_, err := tx.ExecContext(t.Context(), "DELETE FROM effects")
			return errors.Join(err, r.Err())
		},
		"prepares": func(tx *sql.Tx) error {
			r := open(tx)
			defer r.Close()
			stmt, err := tx.PrepareContext(t.Context(), "DELETE FROM effects")
			if err != nil {
				_ = tx.Rollback()
				return errors.Join(err, r.Err())
			}
			defer stmt.Close()
			return r.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			reqs := []dedup.Request{{Key: dedup.Key{Scope: name, Type: "t", ID: "a"}, Retention: time.Hour}}
			answers := make([]dedup.Answer, 1)
			err := s.ClaimTx(t.Context(), time.Minute, reqs, answers,
				func(tx *sql.Tx) ([]dedup.Completion, error) { return nil, handler(tx) })
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			require.Equal(t, name == "fails", errors.Is(err, boom))
			if rows {
				require.Equal(t, name == "fails", err != nil)
				return
			}
			require.Error(t, err)
			if name == "returns" || name == "fails" { // some drivers refuse a statement, and the connection stays well
				require.ErrorContains(t, err, "left a result open")
			}
			require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers,
				func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil }))
			require.Equal(t, dedup.Fresh.String(), answers[0].Verdict.String())
		})
	}
}
