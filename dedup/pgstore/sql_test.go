package pgstore

import (
	"io/fs"
	"regexp"
	"slices"
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

// The names of tables, indexes and views in Go are those of the schema.
func TestRelationsAreThoseOfTheSchema(t *testing.T) {
	created := regexp.MustCompile(`CREATE (?:TABLE|INDEX|OR REPLACE VIEW)(?: IF NOT EXISTS)? (\w+)`)
	checked := regexp.MustCompile(`'"here"\.(\w+)'::regclass`)
	names := func(re *regexp.Regexp, text string) (names []string) {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		require.NotEmpty(t, names)
		return names
	}
	for _, l := range []layout{readable, compact} {
		all := names(created, schemaText(l))
		require.ElementsMatch(t, all, slices.Concat(sharedRelations, ownRelations[l]))
		for _, p := range l.privileges() {
			require.Contains(t, all, p.table)
		}
		require.Subset(t, all, names(checked, newStatements("here", l).keyColumns))
	}
}

// P-04: rows are locked in the order of the keys' own collation, with any collation of the
// database.
func TestCompletionsAreSorted_P04(t *testing.T) {
	require.Contains(t, newStatements("here", readable).complete, `ORDER BY tenant COLLATE "C", scope COLLATE "C", `+
		`event_type COLLATE "C", event_id COLLATE "C") h`)
	require.Contains(t, newStatements("here", compact).complete, "ORDER BY kind, id) h")
}
