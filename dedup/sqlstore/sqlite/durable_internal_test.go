package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A commit waits for the disk, on each connection: a crash of the machine must not lose the record
// of a committed offset.
func TestCommitsWaitForTheDisk(t *testing.T) {
	writer, reader, err := openFile(t.Context(), filepath.Join(t.TempDir(), "idem.db"))
	require.NoError(t, err)
	defer func() {
		require.NoError(t, reader.Close())
		require.NoError(t, writer.Close())
	}()
	const full = 2
	var level int
	require.NoError(t, writer.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&level))
	require.GreaterOrEqual(t, level, full)
	var mode string
	require.NoError(t, writer.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	require.Equal(t, "wal", mode)
}
