package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// lockWait bounds the wait for a lock, in seconds. The server does not notice that a caller has
	// left while its statement waits.
	lockWait = 3
	// silence bounds how long the server waits for the next statement, for the rest of a statement,
	// and for the reading of a result, in seconds. Then the server closes the session, which frees
	// its locks. The methods send each statement at once after the one before.
	silence = 10
	// endTimeout bounds the end of a session, which the context of the caller does not bound.
	endTimeout = 5 * time.Second
)

// querier is a pool, a session, or a session in a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// bounds are the variables of the session that bounded sets, with their values in seconds.
var bounds = []struct {
	name string
	wait int
}{
	{"innodb_lock_wait_timeout", lockWait}, {"wait_timeout", silence},
	{"net_read_timeout", silence}, {"net_write_timeout", silence},
}

// boundTexts returns the statement that keeps the values of bounds and sets them, and the statement
// that puts the values back.
func boundTexts() (set, reset string) {
	var sets, resets []string
	for _, b := range bounds {
		sets = append(sets, fmt.Sprintf("@idem_%[1]s = @@SESSION.%[1]s, @@SESSION.%[1]s = %[2]d",
			b.name, b.wait))
		resets = append(resets, fmt.Sprintf("@@SESSION.%[1]s = @idem_%[1]s", b.name))
	}
	return "SET " + strings.Join(sets, ", "), "SET " + strings.Join(resets, ", ")
}

// bounded runs fn in a session with short waits for locks. If the host of the process vanishes, the
// server ends the session after some seconds. Afterwards the session has its own settings again,
// because the pool is the application's.
func (o *Outbox) bounded(ctx context.Context, fn func(*sql.Conn) error) (err error) {
	if err := o.usable(); err != nil {
		return err
	}
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreClosed(conn.Close())) }()
	set, reset := boundTexts()
	if _, err := conn.ExecContext(ctx, set); err != nil {
		discard(conn) // it may have changed some of its settings
		return err
	}
	err = fn(conn)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, lost := conn.ExecContext(end, reset); lost != nil {
		discard(conn)
	}
	return err
}

// ignoreClosed returns nil for the connection that was discarded before.
func ignoreClosed(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// atomic runs fn in a transaction. READ COMMITTED takes no locks on gaps, and each statement sees
// all commits before it.
func (o *Outbox) atomic(ctx context.Context, fn func(querier) error) error {
	return o.bounded(ctx, func(conn *sql.Conn) error { return inTx(ctx, conn, fn) })
}

// reading runs fn, which takes no locks, in a transaction. Alone, its statement would read at the
// isolation level of the session: READ UNCOMMITTED shows rows that will be rolled back.
func (o *Outbox) reading(ctx context.Context, fn func(querier) error) (err error) {
	if err := o.usable(); err != nil {
		return err
	}
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreClosed(conn.Close())) }()
	return inTx(ctx, conn, fn)
}

// inTx runs fn in a transaction of the session. The statements are sent as text, because the driver
// does not end the COMMIT and ROLLBACK of a [sql.Tx] with the context.
//
// After an error of COMMIT, such as the end of ctx, the transaction has ended or will end. Whether
// its changes remain is unknown.
func inTx(ctx context.Context, conn *sql.Conn, fn func(querier) error) error {
	for _, text := range []string{
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION",
	} {
		if _, err := conn.ExecContext(ctx, text); err != nil {
			discard(conn) // the level would be that of another transaction
			return err
		}
	}
	err := fn(conn)
	if err == nil {
		_, err = conn.ExecContext(ctx, "COMMIT")
	}
	if err == nil {
		return nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if _, lost := conn.ExecContext(end, "ROLLBACK"); lost != nil {
		discard(conn) // the server rolls back
	}
	return err
}

// discard closes the connection of a session. The pool does not use the session again.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// each calls scan for each row of a query.
func each(ctx context.Context, q querier, query string, scan func(*sql.Rows) error) (err error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// one reads the only row of a query. The error is [sql.ErrNoRows] if the result is empty.
func one(ctx context.Context, q querier, query string, into ...any) error {
	found := false
	err := each(ctx, q, query, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(into...)
	})
	if err == nil && !found {
		return sql.ErrNoRows
	}
	return err
}

// list reads a column of numbers.
func list(ctx context.Context, q querier, query string) (all []int64, err error) {
	err = each(ctx, q, query, func(rows *sql.Rows) error {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return err
		}
		all = append(all, n)
		return nil
	})
	return all, err
}

func exec(ctx context.Context, q querier, query string) (int64, error) {
	result, err := q.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
