package sqlite

import (
	"context"

	"github.com/idem-go/idem/dedup/sqlstore"
)

// Dialect is for tests that change it.
var Dialect = dialect

// OpenWith opens a store with a dialect, and without a reaper.
func OpenWith(ctx context.Context, path string, d *sqlstore.Dialect) (*sqlstore.Store, error) {
	writer, reader, err := openFile(ctx, path)
	if err != nil {
		return nil, err
	}
	return sqlstore.New(writer, reader, d, reader.Close, writer.Close), nil
}
