package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	my "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	mystore "github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// mariaDBBox is an outbox in MariaDB.
//
// The server does not tell the order of commits. So a transaction that ends counts up a row of the
// table counters for each of its aggregates, behind Add, and notes the result in the table places.
// The row is locked until the commit. So the places of an aggregate ascend in the order of commits,
// with any locks of the outbox.
type mariaDBBox struct {
	dsn   string
	db    *sql.DB
	out   *mysql.Outbox
	guard *dedup.Guard
	entry func(emission) outbox.Entry
}

// newMariaDBMailbox returns a mailbox in MariaDB. The tables are created.
func newMariaDBMailbox(t testing.TB, brokers []string, dsn string, partitions int32) *mailbox {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(40)
	db.SetMaxIdleConns(40)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, mysql.Migrate(t.Context(), db))
	require.NoError(t, mystore.Migrate(t.Context(), db))
	b := emptyMailbox(t, brokers, partitions)
	b.db = &mariaDBBox{
		dsn: dsn, db: db, out: mysql.New(db), guard: newGuard(t, mystore.New(db)),
		entry: func(e emission) outbox.Entry { return b.entry(e) },
	}
	for _, text := range []string{
		`CREATE TABLE emitted (seq bigint AUTO_INCREMENT PRIMARY KEY, event_id varchar(255),
			tx int, n int, aggregate int, KEY (tx)) ENGINE = InnoDB`,
		`CREATE TABLE counters (aggregate int PRIMARY KEY, n int NOT NULL) ENGINE = InnoDB`,
		`CREATE TABLE places (tx int, aggregate int, place int, PRIMARY KEY (tx, aggregate))
			ENGINE = InnoDB`,
	} {
		_, err := db.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
	var rows []string
	for aggregate := range outboxAggregates {
		rows = append(rows, fmt.Sprintf("(%d, 0)", aggregate))
	}
	_, err = db.ExecContext(t.Context(), "INSERT INTO counters VALUES "+strings.Join(rows, ", "))
	require.NoError(t, err)
	return b
}

func (m *mariaDBBox) relayFlags() []string { return []string{"-mariadb", m.dsn} }

func (m *mariaDBBox) relays() outbox.Store { return m.out }

func (m *mariaDBBox) query(ctx context.Context, text string) (*sql.Rows, error) {
	return m.db.QueryContext(ctx, text)
}

func (m *mariaDBBox) committed() string {
	return `SELECT e.tx, e.n, e.aggregate FROM emitted e
		JOIN places p ON p.tx = e.tx AND p.aggregate = e.aggregate ORDER BY p.place, e.tx, e.n`
}

// runsAgain knows a deadlock and a lock wait time-out.
func (m *mariaDBBox) runsAgain(err error) bool {
	var e *my.MySQLError
	return errors.As(err, &e) && (e.Number == 1213 || e.Number == 1205)
}

func (m *mariaDBBox) transact(
	ctx context.Context, how way, parent dedup.Key, fn func(func([]emission) error) error,
) error {
	if how == gated {
		_, _, err := dedup.DoTx(ctx, m.guard, parent, recordRetention,
			func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
				return struct{}{}, m.emitted(ctx, tx, how, fn)
			})
		return err
	}
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := m.emitted(ctx, tx, how, fn); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// emitted runs fn. The outbox asks for one call of Add: a bare transaction adds at once, in the
// only call of emit, and the others add all events at their end.
func (m *mariaDBBox) emitted(
	ctx context.Context, tx *sql.Tx, how way, fn func(func([]emission) error) error,
) error {
	var all []emission
	err := fn(func(events []emission) error {
		if len(events) == 0 {
			return nil
		}
		all = append(all, events...)
		if err := m.note(ctx, tx, events); err != nil || how != bare {
			return err
		}
		return m.add(ctx, tx, how, events)
	})
	if err == nil && how != bare {
		err = m.add(ctx, tx, how, all)
	}
	if err == nil {
		err = m.count(ctx, tx, all)
	}
	return err
}

// note writes events to the table emitted.
func (m *mariaDBBox) note(ctx context.Context, tx *sql.Tx, events []emission) error {
	var args []any
	for _, e := range events {
		entry := m.entry(e)
		args = append(args, id(&entry), e.tx, e.n, e.aggregate)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO emitted (event_id, tx, n, aggregate) VALUES "+
		strings.Repeat("(?, ?, ?, ?), ", len(events)-1)+"(?, ?, ?, ?)", args...)
	return err
}

func (m *mariaDBBox) add(ctx context.Context, tx *sql.Tx, how way, events []emission) error {
	entries := make([]outbox.Entry, len(events))
	for i, e := range events {
		entries[i] = gatedEntry(m.entry(e), how, e.named())
	}
	return m.out.Add(ctx, tx, entries...)
}

// count notes the place of the transaction among those of each of its aggregates.
func (m *mariaDBBox) count(ctx context.Context, tx *sql.Tx, events []emission) error {
	var aggregates []int
	for _, e := range events {
		aggregates = append(aggregates, e.aggregate)
	}
	slices.Sort(aggregates)
	for _, a := range slices.Compact(aggregates) {
		_, err := tx.ExecContext(ctx, "UPDATE counters SET n = n + 1 WHERE aggregate = ?", a)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO places (tx, aggregate, place) "+
			"SELECT ?, aggregate, n FROM counters WHERE aggregate = ?", events[0].tx, a)
		if err != nil {
			return err
		}
	}
	return nil
}
