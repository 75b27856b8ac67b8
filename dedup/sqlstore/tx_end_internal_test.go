package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// silentConn is a connection to a server that does not answer the statement silent, like one of the
// driver of MySQL: Commit and Rollback have no context, and only the end of the context of a
// statement closes the connection.
type silentConn struct {
	silent string
	once   sync.Once
	waits  atomic.Bool // a call waits for the server without a context
	closed chan struct{}
}

func (c *silentConn) cut() { c.once.Do(func() { close(c.closed) }) }

func (c *silentConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c *silentConn) Close() error                        { return nil }
func (c *silentConn) Begin() (driver.Tx, error)           { return silentTx{c}, nil }

func (c *silentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return silentTx{c}, nil
}

func (c *silentConn) ExecContext(
	ctx context.Context, query string, _ []driver.NamedValue,
) (driver.Result, error) {
	if query != c.silent {
		return driver.RowsAffected(0), nil
	}
	<-ctx.Done()
	c.cut()
	return nil, ctx.Err()
}

type silentTx struct{ c *silentConn }

func (t silentTx) Commit() error   { return t.end("COMMIT") }
func (t silentTx) Rollback() error { return t.end("ROLLBACK") }

func (t silentTx) end(query string) error {
	if query != t.c.silent {
		return nil
	}
	<-t.c.closed
	return driver.ErrBadConn
}

// silentPool is a pool of one silentConn.
type silentPool struct{ *silentConn }

func (p silentPool) Connect(context.Context) (driver.Conn, error) { return p.silentConn, nil }
func (p silentPool) Driver() driver.Driver                        { return lentDriver{} }

func newSilentPool(silent string) silentPool {
	return silentPool{&silentConn{silent: silent, closed: make(chan struct{})}}
}

func silentDialect() *Dialect {
	return &Dialect{
		Name: "silent", EndBySQL: true,
		Classify: func(error) Class { return Unknown },
		Begin: func(context.Context, Querier, time.Duration, time.Duration) (
			func(context.Context) error, error) {
			return nil, nil
		},
	}
}

// A server that does not answer the end of a handler's transaction holds the call for ten seconds.
// The outcome of the COMMIT is unknown (P-16).
func TestLentTransactionEndsWithoutAnAnswer_P16(t *testing.T) {
	for silent, end := range map[string]func(*txRun) error{
		"COMMIT":   (*txRun).commit,
		"ROLLBACK": (*txRun).rollback,
	} {
		t.Run(silent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pool, d := newSilentPool(silent), silentDialect()
				l := newLoan(t.Context(), pool.silentConn, d)
				db := sql.OpenDB(l)
				defer db.Close()
				tx, err := db.BeginTx(context.Background(), nil)
				require.NoError(t, err)
				began := time.Now()
				err = end(&txRun{s: New(db, nil, d), l: l, tx: tx})
				require.Equal(t, endTimeout, time.Since(began))
				require.Error(t, err)
				require.Equal(t, silent == "COMMIT", errors.Is(err, dedup.ErrUnknownCommit))
			})
		})
	}
}

// A server that does not answer the end of one of the store's own transactions holds the call until
// its deadline, or for ten seconds after an error. The pool does not get the connection back (P-16).
func TestOwnTransactionEndsWithoutAnAnswer_P16(t *testing.T) {
	fault := errors.New("on purpose")
	for silent, c := range map[string]struct {
		result, err error
		wait        time.Duration
	}{
		"COMMIT":   {nil, context.DeadlineExceeded, 4 * time.Second},
		"ROLLBACK": {fault, fault, endTimeout},
	} {
		t.Run(silent, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := sql.OpenDB(newSilentPool(silent))
				defer db.Close()
				s := New(db, nil, silentDialect())
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				began := time.Now()
				err := s.ownTx(ctx, "test", nil, func(context.Context, *work) error {
					return c.result
				})
				require.Equal(t, c.wait, time.Since(began))
				require.ErrorIs(t, err, c.err)
				require.ErrorIs(t, err, dedup.ErrUnavailable)
				require.Zero(t, db.Stats().OpenConnections)
			})
		})
	}
}
