package mysql_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// After a deadlock the session has no transaction, and would commit each further statement alone. A handler that ignores the error of
// the deadlock leaves no effect without a record. The error may come while rows are read.
func TestDeadlockThatIsIgnoredLeavesNothing(t *testing.T) {
	t.Run("of a statement", func(t *testing.T) {
		deadlockThatIsIgnored(t, func(tx *sql.Tx) error {
			_, err := tx.Exec("UPDATE rows2 SET n = 2 WHERE id = 2")
			return err
		})
	})
	t.Run("of the second row", func(t *testing.T) {
		deadlockThatIsIgnored(t, func(tx *sql.Tx) error {
			rows, err := tx.Query("SELECT id FROM rows2 ORDER BY id FOR UPDATE")
			require.NoError(t, err, "the first row is locked by this transaction")
			defer rows.Close()
			n := 0
			for rows.Next() {
				n++
			}
			require.Less(t, n, 2)
			return rows.Err()
		})
	})
}

// deadlockThatIsIgnored lets a handler that has locked row 1 wait for row 2 in a deadlock.
func deadlockThatIsIgnored(t *testing.T, lockRow2 func(*sql.Tx) error) {
	t.Helper()
	s := open(t, newTables(t))
	db := siteOf(s).db
	exec := func(tx interface {
		Exec(string, ...any) (sql.Result, error)
	}, text string) error {
		_, err := tx.Exec(text)
		return err
	}
	require.NoError(t, exec(db, "CREATE TABLE rows2 (id int PRIMARY KEY, n int) ENGINE = InnoDB"))
	require.NoError(t, exec(db, "INSERT INTO rows2 VALUES (1, 0), (2, 0)"))
	reqs := []dedup.Request{{Key: dedup.Key{Scope: "s", Type: "t", ID: "a"}, Retention: time.Hour},
		{Key: dedup.Key{Scope: "s", Type: "t", ID: "b"}, Retention: time.Hour}}
	answers := make([]dedup.Answer, len(reqs))
	var late error
	err := s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
		other, err := db.Begin()
		require.NoError(t, err)
		defer func() { _ = other.Rollback() }()
		for range 9 { // the larger transaction survives
			require.NoError(t, exec(other, "INSERT INTO effects SELECT 'x' FROM information_schema.columns LIMIT 200"))
		}
		require.NoError(t, exec(other, "UPDATE rows2 SET n = 1 WHERE id = 2"))
		require.NoError(t, exec(tx, "UPDATE rows2 SET n = 1 WHERE id = 1"))
		waits := make(chan error, 1)
		go func() { waits <- exec(other, "UPDATE rows2 SET n = 2 WHERE id = 1") }()
		require.Error(t, lockRow2(tx), "a deadlock, or a wait that ends")
		late = exec(tx, "INSERT INTO effects VALUES ('late')")
		require.NoError(t, <-waits)
		return nil, nil
	})
	require.ErrorIs(t, late, dedup.ErrTxAborted)
	require.ErrorIs(t, err, dedup.ErrTxAborted)
	var n int
	require.NoError(t, db.QueryRow("SELECT (SELECT count(*) FROM effects WHERE name = 'late') + (SELECT count(*) FROM processed_events)").Scan(&n))
	require.Zero(t, n)
}

// The pool is the application's: after a call of the store, a session has the settings that it had before.
func TestSessionKeepsItsSettings(t *testing.T) {
	s := open(t, newTables(t))
	db := siteOf(s).db
	db.SetMaxOpenConns(1)
	read := func() (n int) {
		require.NoError(t, db.QueryRow("SELECT @@SESSION.innodb_lock_wait_timeout").Scan(&n))
		return n
	}
	before := read()
	answers := make([]dedup.Answer, 1)
	reqs := []dedup.Request{{Key: dedup.Key{Scope: "s", Type: "t", ID: "a"}, Retention: time.Hour}}
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, answers))
	require.Equal(t, before, read())
	require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
		var n int
		require.NoError(t, tx.QueryRow("SELECT @@SESSION.innodb_lock_wait_timeout").Scan(&n))
		require.Equal(t, before, n)
		return nil, nil
	}))
	require.Equal(t, before, read())
	_, err := s.Reopen(t.Context(), reqs[0].Key)
	require.ErrorIs(t, err, dedup.ErrNotDead)
	require.Equal(t, before, read())
}
