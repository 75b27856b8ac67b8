//go:build go1.27

package sqlstore

import "database/sql/driver"

// scannedRows are rows of a driver that scans into the destinations by itself.
type scannedRows struct {
	*lentRows
	inner driver.RowsColumnScanner
}

var _ driver.RowsColumnScanner = (*scannedRows)(nil)

// lentTo returns the rows that a handler gets.
func lentTo(r *lentRows) driver.Rows {
	if s, ok := r.Rows.(driver.RowsColumnScanner); ok {
		return &scannedRows{r, s}
	}
	return r
}

func (r *scannedRows) NextRow() error {
	r.last = r.note(r.inner.NextRow())
	return r.last
}

func (r *scannedRows) ScanColumn(ctx driver.ScanContext, i int, dest any) error {
	return r.inner.ScanColumn(ctx, i, dest) //nolint:wrapcheck // it is the driver's, for the handler
}
