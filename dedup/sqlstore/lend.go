package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
)

// ErrTxOwned is the result of Commit and Rollback of a handler's transaction. Neither has an effect
// in the database: the store rolls back after the handler has returned. ErrTxOwned matches
// [dedup.ErrTxEnded].
var ErrTxOwned = fmt.Errorf("sqlstore: only the store may end the transaction: %w",
	dedup.ErrTxEnded)

// loan lends one connection of a pool to a handler, as a [sql.DB] of its own with this connection
// alone. A [sql.Tx] has no hooks, but its driver has: Commit and Rollback of the handler do not
// reach the database, and the loan can end while a statement runs.
type loan struct {
	inner  driver.Conn
	d      *Dialect
	base   context.Context //nolint:containedctx // the life of the loan
	cancel context.CancelFunc

	owned  atomic.Bool // the store ends the transaction now
	ended  atomic.Bool // the handler tried to
	killed atomic.Bool
	lost   atomic.Bool // an error, such as a deadlock, has ended the transaction
	tx     driver.Tx

	open    atomic.Int32 // results whose rows are not closed
	overlap atomic.Bool  // a statement has run beside one of them
}

func newLoan(ctx context.Context, inner driver.Conn, d *Dialect) *loan {
	l := &loan{inner: inner, d: d}
	l.base, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return l
}

// settleTime is the least time that a statement runs before kill ends the statement. The driver
// lib/pq sends one request to cancel, and a server that has not yet read the statement ignores the
// request.
const settleTime = 200 * time.Millisecond

// kill ends running statements, each at most settleTime later, and refuses others. The connection
// must then be closed.
func (l *loan) kill() {
	l.killed.Store(true)
	l.cancel()
}

// within returns a context that ends with ctx and with the loan.
func (l *loan) within(ctx context.Context) (context.Context, error) {
	switch {
	case l.killed.Load():
		return nil, sql.ErrTxDone
	case l.lost.Load() && !l.owned.Load():
		return nil, fmt.Errorf("%s: %w", l.d.Name, dedup.ErrTxAborted)
	}
	if l.open.Load() > 0 {
		l.overlap.Store(true)
	}
	both, cancel := context.WithCancel(ctx)
	began := time.Now()
	context.AfterFunc(l.base, func() {
		if l.killed.Load() {
			time.AfterFunc(settleTime-time.Since(began), cancel)
			return
		}
		cancel()
	})
	return both, nil
}

// note notes an error of a statement.
func (l *loan) note(err error) error {
	if err != nil && !l.lost.Load() && l.d.ended(l.inner, err) {
		l.lost.Store(true)
	}
	return err
}

// Connect implements [driver.Connector].
func (l *loan) Connect(context.Context) (driver.Conn, error) { return &lentConn{l}, nil }

// Driver implements [driver.Connector].
func (l *loan) Driver() driver.Driver { return lentDriver{} }

type lentDriver struct{}

func (lentDriver) Open(string) (driver.Conn, error) { return nil, errors.ErrUnsupported }

// lentConn is the connection that the handler's transaction uses.
type lentConn struct{ l *loan }

var (
	_ driver.ConnBeginTx        = (*lentConn)(nil)
	_ driver.ConnPrepareContext = (*lentConn)(nil)
	_ driver.ExecerContext      = (*lentConn)(nil)
	_ driver.QueryerContext     = (*lentConn)(nil)
	_ driver.NamedValueChecker  = (*lentConn)(nil)
)

func (c *lentConn) Close() error { return nil } // the pool's
func (c *lentConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *lentConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *lentConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	b, ok := c.l.inner.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	tx, err := b.BeginTx(c.l.base, o)
	if err != nil {
		return nil, err
	}
	c.l.tx = tx
	return &lentTx{c.l}, nil
}

func (c *lentConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	ctx, err := c.l.within(ctx)
	if err != nil {
		return nil, err
	}
	var s driver.Stmt
	if p, ok := c.l.inner.(driver.ConnPrepareContext); ok {
		s, err = p.PrepareContext(ctx, query)
	} else {
		s, err = c.l.inner.Prepare(query)
	}
	if err != nil {
		return nil, err
	}
	return &lentStmt{s, c.l}, nil
}

func (c *lentConn) ExecContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Result, error) {
	e, ok := c.l.inner.(driver.ExecerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	ctx, err := c.l.within(ctx)
	if err != nil {
		return nil, err
	}
	result, err := e.ExecContext(ctx, query, args)
	return result, c.l.note(err)
}

func (c *lentConn) QueryContext(ctx context.Context, query string,
	args []driver.NamedValue) (driver.Rows, error) {
	q, ok := c.l.inner.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	ctx, err := c.l.within(ctx)
	if err != nil {
		return nil, err
	}
	return c.l.rows(q.QueryContext(ctx, query, args))
}

func (c *lentConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.l.inner.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// lentStmt is a prepared statement of a lentConn.
type lentStmt struct {
	driver.Stmt
	l *loan
}

func (s *lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result,
	error) {
	e, ok := s.Stmt.(driver.StmtExecContext)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	ctx, err := s.l.within(ctx)
	if err != nil {
		return nil, err
	}
	result, err := e.ExecContext(ctx, args)
	return result, s.l.note(err)
}

func (s *lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows,
	error) {
	q, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	ctx, err := s.l.within(ctx)
	if err != nil {
		return nil, err
	}
	return s.l.rows(q.QueryContext(ctx, args))
}

func (s *lentStmt) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	if n, ok := s.l.inner.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// lentTx ends the transaction for the store only.
type lentTx struct{ l *loan }

func (t *lentTx) Commit() error {
	if !t.l.owned.Load() {
		t.l.ended.Store(true)
		return ErrTxOwned
	}
	return t.end("COMMIT", t.l.tx.Commit)
}

func (t *lentTx) Rollback() error {
	switch {
	case t.l.killed.Load():
		return driver.ErrBadConn
	case !t.l.owned.Load():
		t.l.ended.Store(true)
		return ErrTxOwned
	}
	return t.end("ROLLBACK", t.l.tx.Rollback)
}

// end ends the transaction. With [Dialect].EndBySQL, kill ends the wait for the answer.
func (t *lentTx) end(text string, byDriver func() error) error {
	c, ok := t.l.inner.(driver.ExecerContext)
	if !ok || !t.l.d.EndBySQL {
		return byDriver()
	}
	_, err := c.ExecContext(t.l.base, text, nil)
	return err
}
