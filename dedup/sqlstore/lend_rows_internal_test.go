package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// errDeadlock is an error that ends the transaction.
var errDeadlock = errors.New("deadlock")

// rowsConn is a connection whose queries return the same rows.
type rowsConn struct {
	driver.Conn
	rows driver.Rows
}

func (c rowsConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return nil, nil }
func (c rowsConn) Prepare(string) (driver.Stmt, error)                          { return rowsStmt{rows: c.rows}, nil }

func (c rowsConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(1), nil
}

func (c rowsConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return c.rows, nil
}

func (c rowsConn) Close() error { return nil }

// rowsPool is a pool without a loan.
type rowsPool struct{ rowsConn }

func (p rowsPool) Connect(context.Context) (driver.Conn, error) { return p.rowsConn, nil }
func (p rowsPool) Driver() driver.Driver                        { return lentDriver{} }

type rowsStmt struct {
	driver.Stmt
	rows driver.Rows
}

func (s rowsStmt) Close() error  { return nil }
func (s rowsStmt) NumInput() int { return 0 }

func (s rowsStmt) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return s.rows, nil
}

// brokenRows are rows whose methods fail.
type brokenRows struct{ next, close, nextSet error }

func (r brokenRows) Columns() []string         { return []string{"n"} }
func (r brokenRows) Next([]driver.Value) error { return r.next }
func (r brokenRows) Close() error              { return r.close }
func (r brokenRows) HasNextResultSet() bool    { return r.nextSet != nil }
func (r brokenRows) NextResultSet() error      { return r.nextSet }

// An error that ends the transaction may come while rows are read. Later statements are refused,
// because the session would commit each of them alone (rule 12).
func TestRowsThatEndTheTransaction_Rule12(t *testing.T) {
	for name, c := range map[string]struct {
		rows brokenRows
		read func(*sql.Rows)
		lost bool
	}{
		"at a row":           {brokenRows{next: errDeadlock}, func(r *sql.Rows) { r.Next() }, true},
		"at the end":         {brokenRows{next: io.EOF, close: errDeadlock}, func(r *sql.Rows) { r.Next() }, true},
		"at the next result": {brokenRows{next: io.EOF, nextSet: errDeadlock}, func(r *sql.Rows) { r.NextResultSet() }, true},
		"another error":      {brokenRows{next: errors.New("bad")}, func(r *sql.Rows) { r.Next() }, false},
		"no error":           {brokenRows{next: io.EOF}, func(r *sql.Rows) { r.Next() }, false},
	} {
		for _, kind := range []string{"query", "prepared"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				d := &Dialect{Ends: func(err error) bool { return errors.Is(err, errDeadlock) }}
				db := sql.OpenDB(newLoan(t.Context(), rowsConn{rows: c.rows}, d))
				defer db.Close()
				tx, err := db.Begin()
				require.NoError(t, err)
				stmt, err := tx.Prepare("SELECT")
				require.NoError(t, err)
				defer stmt.Close()
				query := func() (*sql.Rows, error) { return tx.Query("SELECT") }
				if kind == "prepared" {
					query = func() (*sql.Rows, error) { return stmt.Query() }
				}
				rows, err := query()
				require.NoError(t, err)
				defer rows.Close()
				c.read(rows)
				_ = rows.Err() // the handler ignores it
				_, err = tx.Exec("INSERT")
				require.Equal(t, c.lost, errors.Is(err, dedup.ErrTxAborted), err)
				require.Equal(t, !c.lost, err == nil)
			})
		}
	}
}

// Only a statement beside open rows is noted. database/sql closes rows at their end.
func TestRowsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		use     func(*sql.Rows) error
		overlap bool
	}{
		"left open":       {func(*sql.Rows) error { return nil }, true},
		"closed":          {(*sql.Rows).Close, false},
		"closed twice":    {func(r *sql.Rows) error { return errors.Join(r.Close(), r.Close()) }, false},
		"read to the end": {func(r *sql.Rows) error { r.Next(); return r.Err() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoan(t.Context(), rowsConn{rows: plainRows{}}, &Dialect{})
			db := sql.OpenDB(l)
			defer db.Close()
			tx, err := db.Begin()
			require.NoError(t, err)
			rows, err := tx.Query("SELECT") //nolint:rowserrcheck // the handler does not look
			require.NoError(t, err)
			require.NoError(t, c.use(rows))
			_, err = tx.Exec("INSERT")
			require.NoError(t, err)
			require.Equal(t, c.overlap, l.overlap.Load())
			require.NoError(t, rows.Close()) //nolint:sqlclosecheck // at the end of the test
			require.Zero(t, l.open.Load())
		})
	}
}

// typedRows have all optional methods.
type typedRows struct{ brokenRows }

func (typedRows) ColumnTypeScanType(int) reflect.Type                { return reflect.TypeFor[int8]() }
func (typedRows) ColumnTypeDatabaseTypeName(int) string              { return "TINYINT" }
func (typedRows) ColumnTypeLength(int) (int64, bool)                 { return 4, true }
func (typedRows) ColumnTypeNullable(int) (bool, bool)                { return true, true }
func (typedRows) ColumnTypePrecisionScale(int) (p, s int64, ok bool) { return 2, 1, true }

// plainRows have no optional methods.
type plainRows struct{}

func (plainRows) Columns() []string         { return []string{"n"} }
func (plainRows) Next([]driver.Value) error { return io.EOF }
func (plainRows) Close() error              { return nil }

// A handler sees the same columns as without the loan.
func TestLentRowsKeepTheirTypes(t *testing.T) {
	for name, rows := range map[string]driver.Rows{"typed": typedRows{brokenRows{next: io.EOF}}, "plain": plainRows{}} {
		t.Run(name, func(t *testing.T) {
			read := func(db *sql.DB) (*sql.ColumnType, bool) {
				defer db.Close()
				r, err := db.Query("SELECT")
				require.NoError(t, err)
				defer r.Close()
				types, err := r.ColumnTypes()
				require.NoError(t, err)
				require.False(t, r.Next())
				more := r.NextResultSet()
				require.NoError(t, r.Err())
				return types[0], more
			}
			conn := rowsConn{rows: rows}
			want, more := read(sql.OpenDB(rowsPool{conn}))
			got, gotMore := read(sql.OpenDB(newLoan(t.Context(), conn, &Dialect{})))
			require.Equal(t, want, got)
			require.Equal(t, more, gotMore)
		})
	}
}
