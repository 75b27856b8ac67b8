//go:build go1.27

package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// scanningConn answers each query with one row that only its own rows can scan.
type scanningConn struct{ driver.Conn }

func (scanningConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return nil, errors.ErrUnsupported
}

func (scanningConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &scanningRows{}, nil
}

type scanningRows struct{ read bool }

func (*scanningRows) Columns() []string         { return []string{"tags"} }
func (*scanningRows) Close() error              { return nil }
func (*scanningRows) Next([]driver.Value) error { return errors.New("Next was called") }
func (r *scanningRows) NextRow() error {
	if r.read {
		return io.EOF
	}
	r.read = true
	return nil
}

func (*scanningRows) ScanColumn(_ driver.ScanContext, _ int, dest any) error {
	*dest.(*[]string) = []string{"a", "b"}
	return nil
}

// A handler scans what the driver can scan, such as an array of Postgres with pgx and Go 1.27.
func TestLentRowsScanAsTheDriverDoes(t *testing.T) {
	db := sql.OpenDB(newLoan(t.Context(), scanningConn{}, &Dialect{}))
	var tags []string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT tags").Scan(&tags))
	require.Equal(t, []string{"a", "b"}, tags)
	require.NoError(t, db.Close())
}
