package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// settingConn is a pool of one connection to a server with empty tables. The queries of the dialect
// have the word setting.
type settingConn struct {
	driver.Conn
	query error // of the query of a setting
	next  error // of the row behind its first one
	close error // of its rows
}

func (c *settingConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *settingConn) Driver() driver.Driver                        { return lentDriver{} }
func (c *settingConn) Close() error                                 { return nil }

func (c *settingConn) QueryContext(
	_ context.Context, text string, _ []driver.NamedValue,
) (driver.Rows, error) {
	switch {
	case text == "SELECT 1":
		return &settingRows{left: 1, end: io.EOF}, nil
	case !strings.Contains(text, "setting"):
		return &settingRows{end: io.EOF}, nil
	case c.query != nil:
		return nil, c.query
	}
	return &settingRows{left: 1, end: c.next, close: c.close}, nil
}

func (c *settingConn) ExecContext(
	context.Context, string, []driver.NamedValue,
) (driver.Result, error) {
	return nil, c.query
}

// settingRows are rows that stop with an error.
type settingRows struct {
	left       int
	end, close error
}

func (r *settingRows) Columns() []string { return []string{"value"} }
func (r *settingRows) Close() error      { return r.close }

func (r *settingRows) Next(row []driver.Value) error {
	if r.left == 0 {
		return r.end
	}
	r.left--
	row[0] = int64(1)
	return nil
}

// serverError is an error of the server.
type serverError struct{ class Class }

func (serverError) Error() string { return "refused by the server" }

// checkOf runs Store.Check with a dialect whose check is fn.
func checkOf(t *testing.T, c *settingConn, fn func(context.Context, Querier) error) error {
	db := sql.OpenDB(c)
	defer db.Close()
	_, err := New(db, nil, &Dialect{
		Name:   "test",
		Param:  func(int) string { return "?" },
		Micros: func(column string) string { return column },
		Token:  func(column string) string { return column },
		Classify: func(err error) Class {
			var e serverError
			if errors.As(err, &e) {
				return e.class
			}
			return Unknown
		},
		Check: func(ctx context.Context, q Querier) ([]string, error) { return nil, fn(ctx, q) },
	}).Check(t.Context())
	return err
}

// The server may go away between the store's own queries of a check and those of the dialect.
func TestCheckOfALostServer(t *testing.T) {
	lost := &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNREFUSED}
	unsafe := errors.New("unsafe")
	query := func(ctx context.Context, q Querier) error {
		return each(ctx, q, "SELECT setting", nil, func(*sql.Rows) error { return nil })
	}
	verdict := func(ctx context.Context, q Querier) error {
		if err := query(ctx, q); err != nil {
			return unsafe // the cause is not in the chain
		}
		return unsafe
	}
	exec := func(ctx context.Context, q Querier) error {
		_, err := q.ExecContext(ctx, "SET setting = 1")
		return err
	}
	for name, c := range map[string]struct {
		conn   settingConn
		check  func(context.Context, Querier) error
		outage bool
		cause  error
	}{
		"query":                  {settingConn{query: lost}, query, true, lost},
		"rows":                   {settingConn{next: lost}, query, true, lost},
		"close of the rows":      {settingConn{next: io.EOF, close: lost}, query, true, lost},
		"statement":              {settingConn{query: lost}, exec, true, lost},
		"verdict without query":  {settingConn{query: lost}, verdict, true, unsafe},
		"verdict of half a list": {settingConn{next: lost}, verdict, true, unsafe},
		"verdict":                {settingConn{next: io.EOF}, verdict, false, unsafe},
		"verdict behind a refusal": {
			settingConn{query: serverError{Refused}}, verdict, false, unsafe},
		"refusal of the server": {
			settingConn{query: serverError{Refused}}, query, false, serverError{Refused}},
		"server that is down": {
			settingConn{query: serverError{Down}}, query, true, serverError{Down}},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkOf(t, &c.conn, c.check)
			require.ErrorIs(t, err, c.cause)
			require.Equal(t, c.outage, errors.Is(err, dedup.ErrUnavailable), err)
		})
	}
}

func TestCheckOfASafeServer(t *testing.T) {
	require.NoError(t, checkOf(t, &settingConn{}, func(context.Context, Querier) error { return nil }))
}
