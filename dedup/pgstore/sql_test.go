package pgstore

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// P-21: a plain INSERT of a known key would abort the transaction of the handler. Every INSERT of the
// store has its ON CONFLICT.
func TestInsertsExpectConflicts_P21(t *testing.T) {
	inserts := 0
	require.NoError(t, fs.WalkDir(sqlFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(sqlFiles, path)
		for _, statement := range strings.Split(string(text), "INSERT INTO ")[1:] {
			inserts++
			require.Contains(t, statement, "ON CONFLICT", path)
		}
		return err
	}))
	require.Greater(t, inserts, 10)
}

// P-06, P-07: the tables have no partitions. A unique key over partitions would have to name the time,
// and a missing partition would refuse every event.
func TestTablesHaveNoPartitions_P06_P07(t *testing.T) {
	for _, text := range []string{Schema(), Schema(Compact())} {
		require.Greater(t, strings.Count(text, "CREATE TABLE"), 5)
		for _, words := range []string{"PARTITION BY", "PARTITION OF"} {
			require.Zero(t, strings.Count(strings.ToUpper(text), words), words)
		}
	}
}
