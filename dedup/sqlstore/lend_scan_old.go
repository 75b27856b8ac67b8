//go:build !go1.27

package sqlstore

import "database/sql/driver"

// lentTo returns the rows that a handler gets. Before Go 1.27, no driver scans by itself.
func lentTo(r *lentRows) driver.Rows { return r }
