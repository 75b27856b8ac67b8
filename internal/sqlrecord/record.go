// Package sqlrecord records the statements that code under test sends through database/sql, so that
// a test can look at their plans.
package sqlrecord

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Statement is a statement with its arguments.
type Statement struct {
	Text string
	Args []any
}

// Log holds statements in the order in which they were sent. Safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	all []Statement
}

// Take returns the statements since the last call.
func (l *Log) Take() []Statement {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

func (l *Log) add(text string, args []driver.NamedValue) {
	s := Statement{Text: text}
	for _, a := range args {
		v := a.Value
		if b, ok := v.([]byte); ok {
			v = slices.Clone(b) // the caller may use the memory again
		}
		s.Args = append(s.Args, v)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

// Open opens a database with a driver that is registered under name. The log gets each statement
// that is not prepared by the caller. The driver must implement the optional interfaces of
// connections for contexts. Cleanup closes the database.
func Open(t testing.TB, name, dsn string) (*sql.DB, *Log) {
	t.Helper()
	plain, err := sql.Open(name, dsn)
	require.NoError(t, err)
	log := &Log{}
	c := &connector{driver: plain.Driver(), dsn: dsn, log: log}
	require.NoError(t, plain.Close())
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, log
}

type connector struct {
	driver driver.Driver
	dsn    string
	log    *Log
}

func (c *connector) Driver() driver.Driver { return c.driver }

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	inner, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	both, ok := inner.(connection)
	if !ok {
		return nil, errors.Join(errors.New("sqlrecord: the driver lacks interfaces for contexts"),
			inner.Close())
	}
	return &conn{both, c.log}, nil
}

// connection is a connection of the driver, with those optional interfaces that all drivers under
// test have.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

type conn struct {
	connection
	log *Log
}

func (c *conn) ExecContext(
	ctx context.Context, text string, args []driver.NamedValue,
) (driver.Result, error) {
	c.log.add(text, args)
	return c.connection.ExecContext(ctx, text, args)
}

func (c *conn) QueryContext(
	ctx context.Context, text string, args []driver.NamedValue,
) (driver.Rows, error) {
	c.log.add(text, args)
	return c.connection.QueryContext(ctx, text, args)
}

// CheckNamedValue implements [driver.NamedValueChecker] as the driver does.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.connection.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// ResetSession implements [driver.SessionResetter] as the driver does.
func (c *conn) ResetSession(ctx context.Context) error {
	if r, ok := c.connection.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

// IsValid implements [driver.Validator] as the driver does.
func (c *conn) IsValid() bool {
	v, ok := c.connection.(driver.Validator)
	return !ok || v.IsValid()
}
