package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// Several instances create the tables at once, and again at each start, while a transaction that
// adds entries is open.
func TestMigrateAtOnce(t *testing.T) {
	db, err := sql.Open("mysql", testenv.MariaDB(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	migrate := func() {
		errs := make([]error, 4)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = mysql.Migrate(t.Context(), db) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	migrate()
	box := mysql.New(db)
	tx := begin(t, db)
	require.NoError(t, box.Add(t.Context(), tx, entry("A", "1")))
	began := time.Now()
	migrate()
	require.Less(t, time.Since(began), 2*time.Second, "it waited for a lock")
	_, err = box.Check(t.Context())
	require.NoError(t, err)
}

// The text for other migration tools has the same result when it is run again.
func TestSchemaAgain(t *testing.T) {
	db := newDB(t, "multiStatements=true")
	require.NoError(t, exec(t.Context(), db, mysql.Schema()))
	_, err := mysql.New(db).Check(t.Context())
	require.NoError(t, err)
}

// O-14: the table refuses a row without an ID, in every mode of the server.
func TestNoRowWithoutID(t *testing.T) {
	for _, mode := range []string{"''", "'STRICT_ALL_TABLES'"} {
		db := newDB(t, "sql_mode="+mode)
		require.Error(t, exec(t.Context(), db,
			"INSERT INTO idem_outbox (shard, topic, event_type) VALUES (0, 'orders', 't')"))
	}
}

// Check names the problems that have to be solved before use.
func TestCheck(t *testing.T) {
	db := newDB(t)
	box := mysql.New(db)
	_, err := box.Check(t.Context())
	require.NoError(t, err)
	var setup *dedup.SetupError
	for _, text := range []string{
		"DELETE FROM idem_outbox_locks WHERE slot = 77", "DELETE FROM idem_outbox_shards WHERE shard = 7",
		"DROP TABLE idem_outbox_locks",
	} {
		require.NoError(t, exec(t.Context(), db, text))
		_, err := box.Check(t.Context())
		require.ErrorAs(t, err, &setup, text)
	}

	require.NoError(t, mysql.Migrate(t.Context(), db), "the remedy that Check names")
	_, err = box.Check(t.Context())
	require.NoError(t, err)
	for _, text := range []string{
		"DELETE FROM idem_outbox_locks WHERE slot IN (0, 77)", "INSERT INTO idem_outbox_locks VALUES (4096)",
		"DELETE FROM idem_outbox_shards WHERE shard IN (3, 63)", "INSERT INTO idem_outbox_shards (shard) VALUES (64), (-1)",
	} {
		require.NoError(t, exec(t.Context(), db, text))
	}
	_, err = box.Check(t.Context())
	require.ErrorAs(t, err, &setup, "other rows hide no missing one")
	open := begin(t, db) // holds slots of its own
	require.NoError(t, box.Add(t.Context(), open, entry("A", "1")))
	require.NoError(t, mysql.Migrate(t.Context(), db))
	_, err = box.Check(t.Context())
	require.NoError(t, err)
	_, err = mysql.New(newDB(t, "charset=latin1")).Check(t.Context())
	require.ErrorContains(t, err, "utf8mb4")
	_, err = mysql.New(newDB(t, "autocommit=0")).Check(t.Context())
	require.ErrorContains(t, err, "autocommit")
}

// A relay publishes no event of an open transaction, even if its session reads uncommitted rows
// (O-01).
func TestReadsCommittedRows_O01(t *testing.T) {
	db := newDB(t, "tx_isolation=%27READ-UNCOMMITTED%27")
	box, open := mysql.New(db), begin(t, db)
	require.NoError(t, box.Add(t.Context(), open, entry("A", "1"), entry("B", "2")))
	_, err := open.ExecContext(t.Context(),
		"UPDATE idem_outbox SET state = 2, ended_at = UTC_TIMESTAMP(6) WHERE event_id = '2'")
	require.NoError(t, err)
	dirty, err := states(t.Context(), db)
	require.NoError(t, err)
	require.Len(t, dirty, 2, "the sessions of the pool read uncommitted rows")
	held, err := box.Hold(t.Context(), "r", time.Minute, true)
	require.NoError(t, err)
	rows, err := box.Fetch(t.Context(), outbox.Fetch{Shards: held, Limit: 10, Bytes: 1 << 20})
	require.NoError(t, err)
	require.Empty(t, rows)
	parked, err := box.Parked(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, parked)
	backlog, err := box.Backlog(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, outbox.Backlog{}, backlog)
}

// Errors name the cause and the remedy.
func TestErrors(t *testing.T) {
	require.ErrorContains(t, mysql.New(nil).Add(t.Context(), nil, outbox.Entry{}), "tx is nil")
	_, err := mysql.New(nil).Backlog(t.Context(), 1)
	require.ErrorContains(t, err, "no pool")
	db := newDB(t)
	box, tx, large := mysql.New(db), begin(t, db), entry("A", "large")
	large.Payload = make([]byte, 2000)
	require.ErrorIs(t, mysql.New(db, mysql.MaxBytes(1000)).Add(t.Context(), tx, large), outbox.ErrEntry)
	require.ErrorContains(t, mysql.New(db, mysql.MaxBytes(0)).Add(t.Context(), tx, large), "MaxBytes")
	require.ErrorContains(t, mysql.New(db, mysql.Observers(1)).Add(t.Context(), tx, large), "Observers")
	require.NoError(t, box.Add(t.Context(), tx, entry("A", "1")), "the transaction goes on")

	var number *my.MySQLError
	other := begin(t, db)
	_, err = other.ExecContext(t.Context(), "SET SESSION innodb_lock_wait_timeout = 1")
	require.NoError(t, err)
	err = box.Add(t.Context(), other, entry("A", "2"))
	require.ErrorAs(t, err, &number)
	require.EqualValues(t, 1205, number.Number)
	require.NotErrorIs(t, err, dedup.ErrUnavailable)
	require.NoError(t, tx.Rollback())
	require.NoError(t, other.Rollback())

	var id int
	gone := begin(t, db)
	require.NoError(t, gone.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
	require.NoError(t, exec(t.Context(), db, fmt.Sprint("KILL ", id)))
	require.ErrorIs(t, box.Add(t.Context(), gone, entry("A", "3")), dedup.ErrUnavailable)

	require.NoError(t, exec(t.Context(), db, "DROP TABLE idem_outbox"))
	var setup *dedup.SetupError
	require.ErrorAs(t, box.Add(t.Context(), begin(t, db), entry("", "4")), &setup)
	_, err = box.Backlog(t.Context(), 1)
	require.ErrorAs(t, err, &setup)
}

// Rule 22: two calls of Add in a transaction take their locks one after the other, and can deadlock,
// as documented. The other transaction commits.
func TestTwoAddsCrosswise(t *testing.T) {
	db := newDB(t)
	box, one, two := mysql.New(db), begin(t, db), begin(t, db)
	require.NoError(t, box.Add(t.Context(), one, entry("A", "1")))
	require.NoError(t, box.Add(t.Context(), two, entry("B", "2")))
	finish := func(tx *sql.Tx, e outbox.Entry) error {
		if err := box.Add(t.Context(), tx, e); err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	}
	first := make(chan error, 1)
	go func() { first <- finish(one, entry("B", "3")) }()
	errs := []error{finish(two, entry("A", "4")), <-first}
	var number *my.MySQLError
	if errs[0] == nil {
		errs[0], errs[1] = errs[1], errs[0]
	}
	require.ErrorAs(t, errs[0], &number)
	require.EqualValues(t, 1213, number.Number)
	require.NoError(t, errs[1])
	all, err := states(t.Context(), db)
	require.NoError(t, err)
	require.Len(t, all, 2)
}

// The pool is the application's: after a call, a session has the settings that it had before, also
// when the call was cut short. A lock that a person holds bounds each call.
func TestSessionKeepsItsSettings(t *testing.T) {
	db := newDB(t)
	box := mysql.New(db)
	locker := begin(t, db)
	_, err := locker.ExecContext(t.Context(), "SELECT 1 FROM idem_outbox_shards FOR UPDATE")
	require.NoError(t, err)
	db.SetMaxOpenConns(2)
	read := func() (n [4]int) {
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@SESSION.innodb_lock_wait_timeout, "+
			"@@SESSION.wait_timeout, @@SESSION.net_read_timeout, @@SESSION.net_write_timeout").
			Scan(&n[0], &n[1], &n[2], &n[3]))
		return n
	}
	before := read()
	_, err = box.Hold(t.Context(), "r", time.Minute, true)
	require.NoError(t, err, "it left the rows out")
	require.Equal(t, before, read())
	held := []outbox.Lease{{Shard: 1, Epoch: 1}}
	began := time.Now()
	_, err = box.Settle(t.Context(), "r", held, outbox.Settlement{Blocked: []outbox.RowID{{Seq: 1}}})
	var number *my.MySQLError
	require.ErrorAs(t, err, &number)
	require.EqualValues(t, 1205, number.Number)
	require.Less(t, time.Since(began), 8*time.Second)
	require.Equal(t, before, read())
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = box.Settle(short, "r", held, outbox.Settlement{Blocked: []outbox.RowID{{Seq: 1}}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, before, read())
}
