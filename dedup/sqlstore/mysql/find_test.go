package mysql_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/internal/findtest"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/internal/sqlrecord"
	"github.com/stretchr/testify/require"
)

func TestFindOfManyKinds(t *testing.T) {
	db, log := sqlrecord.Open(t, "mysql", newTables(t))
	findtest.Walk(t, mysql.New(db), log)
}

// The server skips the rows of a kind, and does not read the index from its begin to its end.
func TestFindSkipsTheRowsOfAKind(t *testing.T) {
	db, _ := sqlrecord.Open(t, "mysql", newTables(t))
	db.SetMaxOpenConns(1) // the numbers of a session
	s := mysql.New(db)
	var events []dedup.Imported
	for i := range 5000 {
		events = append(events, dedup.Imported{Retention: time.Hour, Tx: true,
			Key: dedup.Key{Scope: fmt.Sprint("s", i%5), Type: "x", ID: fmt.Sprint(i)}})
	}
	_, err := s.Import(t.Context(), events)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "ANALYZE TABLE processed_events")
	require.NoError(t, err)
	before := entriesRead(t, db)
	records, err := s.Find(t.Context(), "", "7")
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Less(t, entriesRead(t, db)-before, 100)
}

// entriesRead returns the number of entries of indexes that the session has read.
func entriesRead(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	for _, name := range []string{"Handler_read_key", "Handler_read_next"} {
		var of int
		require.NoError(t, db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE '"+name+"'").
			Scan(&name, &of))
		n += of
	}
	return n
}
