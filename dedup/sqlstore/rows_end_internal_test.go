package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

func (c *silentConn) QueryContext(
	ctx context.Context, query string, _ []driver.NamedValue,
) (driver.Rows, error) {
	return &halfRows{c: c, ctx: ctx, silent: strings.Contains(query, "silent")}, nil
}

// halfRows are the rows of a query, like those of the driver of MySQL: Next ends with the context
// of the query, which closes the connection. Close reads the rest without a context, and would wait
// for ever. The server sends one row and, if silent, nothing more.
type halfRows struct {
	c      *silentConn
	ctx    context.Context
	silent bool
	sent   bool
}

func (*halfRows) Columns() []string { return []string{"now", "horizon"} }

func (r *halfRows) Next(dest []driver.Value) error {
	if !r.sent {
		r.sent = true
		dest[0] = int64(0)
		return nil
	}
	if !r.silent {
		return io.EOF
	}
	select {
	case <-r.ctx.Done():
		r.c.cut()
		return r.ctx.Err()
	case <-r.c.closed:
		return driver.ErrBadConn
	}
}

func (r *halfRows) Close() error {
	if !r.silent {
		return nil
	}
	select {
	case <-r.c.closed:
	default:
		r.c.waits.Store(true)
		r.c.cut()
	}
	return driver.ErrBadConn
}

// runHalf runs fn in a transaction on a server that stops in the middle of a result.
func runHalf(t *testing.T, fn func(*sql.Tx) error) error {
	pool := newSilentPool("none")
	db := sql.OpenDB(pool)
	defer db.Close()
	d := silentDialect()
	d.Replace = func(_, _ []string) string { return "" }
	d.Mark = func(context.Context, Querier) (func(context.Context) error, error) {
		return func(context.Context) error { return driver.ErrBadConn }, nil
	}
	err := New(db, nil, d).RunTx(t.Context(), time.Minute, fn)
	require.False(t, pool.waits.Load(), "the driver reads rows without a context")
	require.Zero(t, db.Stats().OpenConnections)
	return err
}

// A handler reads a row of a result that does not end. The wait ends with the context of the query
// (P-16).
func TestRowEndsWithoutAnAnswer_P16(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := runHalf(t, func(tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var at int64
			return tx.QueryRowContext(ctx, "silent").Scan(&at, new(any))
		})
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, err, driver.ErrBadConn)
	})
}

// The run of a handler is abandoned while it reads a result that does not end. The rollback closes
// the rows, and returns once the statement is cancelled (P-16). The time is real, since the rollback
// waits for a mutex.
func TestAbandonedRunEndsWithoutAnAnswer_P16(t *testing.T) {
	err := runHalf(t, func(tx *sql.Tx) error {
		rows, err := tx.Query("silent") //nolint:rowserrcheck,sqlclosecheck // left open on purpose
		if err != nil || !rows.Next() {
			return errors.Join(err, errors.New("no row"))
		}
		return dedup.ErrAbandoned
	})
	require.ErrorIs(t, err, dedup.ErrAbandoned)
}

// errServer is an error that the server sends in place of a row.
var errServer = errors.New("server")

// setRows are results with these numbers of rows. A further row after the end of a result is a
// fault, as it is for the driver of MySQL. The last result ends with end.
type setRows struct {
	t    *testing.T
	sets []int
	end  error
	over bool
}

func (*setRows) Columns() []string { return []string{"n"} }
func (*setRows) Close() error      { return nil }

func (r *setRows) Next([]driver.Value) error {
	require.False(r.t, r.over, "a row is read after the end")
	if r.sets[0] > 0 {
		r.sets[0]--
		return nil
	}
	r.over = true
	if len(r.sets) == 1 {
		return r.end
	}
	return io.EOF
}

func (r *setRows) HasNextResultSet() bool { return len(r.sets) > 1 }

func (r *setRows) NextResultSet() error {
	r.sets, r.over = r.sets[1:], false
	return nil
}

// Close reads the rest of all results, once, and tells of an error of the server.
func TestRestOfTheRowsIsRead(t *testing.T) {
	next := func(r *sql.Rows) { r.Next() }
	for name, c := range map[string]struct {
		sets []int
		end  error
		read func(*sql.Rows)
		err  error
	}{
		"unread":                  {[]int{3}, io.EOF, func(*sql.Rows) {}, nil},
		"a row was read":          {[]int{3}, io.EOF, next, nil},
		"all was read":            {[]int{0}, io.EOF, next, nil},
		"more results":            {[]int{3, 0, 2}, io.EOF, next, nil},
		"between two results":     {[]int{0, 2}, io.EOF, next, nil},
		"in the second result":    {[]int{0, 2}, io.EOF, func(r *sql.Rows) { r.Next(); r.NextResultSet() }, nil},
		"an error of the server":  {[]int{3, 1}, errServer, next, errServer},
		"an error that was read":  {[]int{0}, errServer, next, nil},
		"a row that has no value": {[]int{3, 1}, errors.New("parse"), next, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rows := &setRows{t: t, sets: c.sets, end: c.end}
			d := &Dialect{EndBySQL: true, Classify: func(err error) Class {
				if errors.Is(err, errServer) {
					return Refused
				}
				return Unknown
			}}
			db := sql.OpenDB(newLoan(t.Context(), rowsConn{rows: rows}, d))
			defer db.Close()
			r, err := db.Query("SELECT") //nolint:rowserrcheck // Close has the error
			require.NoError(t, err)
			c.read(r)
			require.Equal(t, c.err, r.Close()) //nolint:sqlclosecheck // the call under test
			require.Len(t, rows.sets, 1)
			require.True(t, rows.over)
		})
	}
}
