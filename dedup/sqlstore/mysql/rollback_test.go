package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/endtest"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/stretchr/testify/require"
)

// failWith lets a statement fail with an error of the server.
func failWith(number int) string {
	return fmt.Sprintf("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = %d, MESSAGE_TEXT = 'on purpose'", number)
}

func oneRequest() []dedup.Request {
	return []dedup.Request{{Key: dedup.Key{Scope: "s", Type: "t", ID: "a"}, Retention: time.Hour}}
}

// After each error with which InnoDB rolls back the transaction, the handler's later statements are
// refused: they would be committed alone (rule 12).
func TestRollbackThatIsIgnoredLeavesNothing(t *testing.T) {
	s := open(t, newTables(t))
	for _, number := range []int{1213, 1206, 1020} {
		var late error
		err := s.ClaimTx(t.Context(), time.Minute, oneRequest(), make([]dedup.Answer, 1),
			func(tx *sql.Tx) ([]dedup.Completion, error) {
				_, err := tx.Exec(failWith(number))
				require.Error(t, err)
				_, late = tx.Exec("INSERT INTO effects VALUES ('late')")
				return nil, nil
			})
		require.ErrorIs(t, late, dedup.ErrTxAborted, number)
		require.ErrorIs(t, err, dedup.ErrTxAborted, number)
	}
	var n int
	require.NoError(t, siteOf(s).db.QueryRow("SELECT (SELECT count(*) FROM effects) + (SELECT count(*) FROM processed_events)").Scan(&n))
	require.Zero(t, n)
}

// An error about the state of the server is an outage, also if a handler returns it: the event is
// not the cause. A statement that the server has stopped is the handler's own error.
func TestStatesOfTheServer(t *testing.T) {
	s := open(t, newTables(t))
	handler := func(number int) error {
		return s.ClaimTx(t.Context(), time.Minute, oneRequest(), make([]dedup.Answer, 1),
			func(tx *sql.Tx) ([]dedup.Completion, error) {
				_, err := tx.Exec(failWith(number))
				return nil, err
			})
	}
	for _, number := range []int{1114, 1206, 1226, 1047} {
		require.ErrorIs(t, handler(number), dedup.ErrUnavailable, number)
	}
	for _, number := range []int{1317, 3024, 1969} {
		require.NotErrorIs(t, handler(number), dedup.ErrUnavailable, number)
	}
	db := siteOf(s).db
	for _, number := range []int{1114, 1317, 3024, 1969} {
		_, err := db.Exec("CREATE OR REPLACE TRIGGER fails BEFORE INSERT ON idempotency_keys FOR EACH ROW " + failWith(number))
		require.NoError(t, err)
		err = s.Claim(t.Context(), dedup.NewToken(), time.Minute, oneRequest(), make([]dedup.Answer, 1))
		require.ErrorIs(t, err, dedup.ErrUnavailable, number)
	}
}

// A session that goes back to the pool after a cancelled call has the settings that it had before.
func TestCancelledCallRestoresTheSession(t *testing.T) {
	dsn := newTables(t)
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	read := func() (n int) {
		require.NoError(t, db.QueryRow("SELECT @@SESSION.innodb_lock_wait_timeout").Scan(&n))
		return n
	}
	before := read()
	d := mysql.Dialect()
	begin := d.Begin
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d.Begin = func(ctx context.Context, q sqlstore.Querier, wait, idle time.Duration) (func(context.Context) error, error) {
		restore, err := begin(ctx, q, wait, idle)
		cancel() // between two statements
		for deadline := time.Now().Add(100 * time.Millisecond); db.Stats().InUse > 0 && time.Now().Before(deadline); {
			_ = db.Stats()
		}
		return restore, err
	}
	s := sqlstore.New(db, nil, d)
	err = s.Claim(ctx, dedup.NewToken(), time.Minute, oneRequest(), make([]dedup.Answer, 1))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, read())
}

// A deadlock behind the end of the transaction does not hide that end (rule 12).
func TestDeadlockBehindACommit_Rule12(t *testing.T) {
	for name, c := range map[string]struct {
		statements []string
		committed  bool
	}{
		"COMMIT":               {[]string{"COMMIT"}, true},
		"an implicit commit":   {[]string{"CREATE TABLE made (n int)"}, true},
		"a second transaction": {[]string{"COMMIT", "BEGIN"}, true},
		"the deadlock alone":   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, newTables(t))
			err := endtest.Group(t, s, c.committed, func(tx *sql.Tx) error {
				return endtest.All(t, tx, append(c.statements, failWith(1213))...)
			})
			require.Equal(t, !c.committed, errors.Is(err, dedup.ErrContended), err)
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			if c.statements == nil {
				return
			}
			var late error
			err = s.ClaimTx(t.Context(), time.Minute, oneRequest(), make([]dedup.Answer, 1),
				func(tx *sql.Tx) ([]dedup.Completion, error) {
					late = endtest.All(t, tx, "COMMIT", failWith(1213))
					return nil, nil // the handler ignores it
				})
			require.Error(t, late)
			require.ErrorIs(t, err, dedup.ErrTxEnded)
			require.NotErrorIs(t, err, dedup.ErrTxAborted)
		})
	}
}

// The end of the connection behind the end of the transaction does not hide that end, also if the
// handler then calls Rollback (rule 12).
func TestLostConnectionBehindACommit_Rule12(t *testing.T) {
	const kill = "KILL CONNECTION_ID()"
	for name, c := range map[string]struct {
		run       func(*testing.T, *sql.Tx) error
		committed bool
	}{
		"killed": {func(t *testing.T, tx *sql.Tx) error { return endtest.All(t, tx, "COMMIT", kill) }, true},
		"cancelled": {func(t *testing.T, tx *sql.Tx) error { // the driver closes the connection
			require.NoError(t, endtest.All(t, tx, "COMMIT"))
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, "SELECT SLEEP(60)")
			return err
		}, true},
		"without a COMMIT": {func(t *testing.T, tx *sql.Tx) error { return endtest.All(t, tx, kill) }, false},
	} {
		for end, rollback := range map[string]bool{"returns": false, "rolls back": true} {
			t.Run(name+"/"+end, func(t *testing.T) {
				_ = endtest.Group(t, open(t, newTables(t)), c.committed, func(tx *sql.Tx) error {
					err := c.run(t, tx)
					if rollback {
						_ = tx.Rollback()
					}
					return err
				})
			})
		}
	}
}

// P-13: a handler that has sent COMMIT as SQL does not run again after a deadlock, and the error
// tells of the COMMIT.
func TestFailureBehindACommit_P13(t *testing.T) {
	for name, failure := range map[string]string{
		"deadlock": failWith(1213), "a table that is missing": "INSERT INTO nowhere VALUES (1)",
	} {
		t.Run(name, func(t *testing.T) {
			endtest.Single(t, open(t, newTables(t)), "COMMIT", failure)
		})
	}
}

func TestDeadlockIsRepeated(t *testing.T) { endtest.Repeats(t, open(t, newTables(t)), failWith(1213)) }

func TestOpenRowsAreAnError(t *testing.T) {
	endtest.OpenRows(t, open(t, newTables(t)), "SELECT column_name FROM information_schema.columns", false)
}

// The loss of the connection during a COMMIT as SQL does not hide it: the COMMIT goes on. The same is
// true of a handler that is abandoned (rule 12).
func TestSlowCommitAsSQL_Rule12(t *testing.T) {
	slow := endtest.Slow{
		Commit: "BEGIN NOT ATOMIC DO SLEEP(1); COMMIT; END", Self: "SELECT CONNECTION_ID()",
		Asleep: "SELECT count(*) FROM information_schema.processlist WHERE id = ? AND state = 'User sleep'",
	}
	for end, run := range map[string]func(*testing.T, dedup.TxStore[*sql.Tx], *sql.DB){
		"lost": slow.Lost, "abandoned": slow.Abandoned,
		"lost and rolled back": slow.LostAndRolledBack,
	} {
		t.Run(end, func(t *testing.T) {
			s := open(t, newTables(t))
			run(t, s, siteOf(s).db)
		})
	}
}

// A lock of another worker on a row of the group does not hide a COMMIT as SQL (rule 12).
func TestCommitBehindALockedRow_Rule12(t *testing.T) {
	s := open(t, newTables(t))
	endtest.HeldRow(t, s, siteOf(s).db, "KILL CONNECTION_ID()")
}
