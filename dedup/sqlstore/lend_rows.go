package sqlstore

import (
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
	"sync/atomic"
)

// rows returns the rows of a query of the loan.
func (l *loan) rows(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, l.note(err)
	}
	l.open.Add(1)
	return lentTo(&lentRows{Rows: rows, l: l}), nil
}

// lentRows notes the errors that come while rows are read, and the end of the rows. Where the
// driver's rows lack an optional method, the result is that of [database/sql] for such rows.
type lentRows struct {
	driver.Rows
	l      *loan
	closed atomic.Bool
	last   error // the end of the present result: io.EOF, or an error
}

var (
	_ driver.RowsNextResultSet              = (*lentRows)(nil)
	_ driver.RowsColumnTypeScanType         = (*lentRows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*lentRows)(nil)
	_ driver.RowsColumnTypeLength           = (*lentRows)(nil)
	_ driver.RowsColumnTypeNullable         = (*lentRows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*lentRows)(nil)
)

// note notes an error that is not the end of the rows.
func (r *lentRows) note(err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	return r.l.note(err)
}

func (r *lentRows) Next(dest []driver.Value) error {
	r.last = r.note(r.Rows.Next(dest))
	return r.last
}

// Close reads the rows that are left.
func (r *lentRows) Close() error {
	if !r.closed.Swap(true) {
		defer r.l.open.Add(-1)
	}
	failed := r.readRest()
	if err := r.note(r.Rows.Close()); err != nil {
		return err
	}
	return failed
}

// readRest reads the rows that are left, with [Dialect].EndBySQL. The context of the query still
// bounds that, but does not bound the Close of the driver. The result is an error of the server that
// no earlier call has returned.
func (r *lentRows) readRest() error {
	if !r.l.d.EndBySQL || r.last != nil && !errors.Is(r.last, io.EOF) {
		return nil
	}
	for {
		for dest := make([]driver.Value, len(r.Columns())); r.last == nil; {
			_ = r.Next(dest) // see r.last
		}
		if !errors.Is(r.last, io.EOF) || !r.HasNextResultSet() {
			break
		}
		if r.NextResultSet() != nil {
			break
		}
	}
	if r.l.d.Classify(r.last) == Unknown { // the end, or the connection is lost
		return nil
	}
	return r.last
}

func (r *lentRows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *lentRows) NextResultSet() error {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	r.last = r.note(n.NextResultSet())
	return r.last
}

func (r *lentRows) ColumnTypeScanType(i int) reflect.Type {
	if t, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return t.ColumnTypeScanType(i)
	}
	return reflect.TypeFor[any]()
}

func (r *lentRows) ColumnTypeDatabaseTypeName(i int) string {
	if t, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return t.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

func (r *lentRows) ColumnTypeLength(i int) (length int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeLength); ok {
		return t.ColumnTypeLength(i)
	}
	return 0, false
}

func (r *lentRows) ColumnTypeNullable(i int) (nullable, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypeNullable); ok {
		return t.ColumnTypeNullable(i)
	}
	return false, false
}

func (r *lentRows) ColumnTypePrecisionScale(i int) (precision, scale int64, ok bool) {
	if t, ok := r.Rows.(driver.RowsColumnTypePrecisionScale); ok {
		return t.ColumnTypePrecisionScale(i)
	}
	return 0, 0, false
}
