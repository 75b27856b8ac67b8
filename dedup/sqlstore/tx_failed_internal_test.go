package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// mortalConn is a connection that the handler can lose. No query finds a row.
type mortalConn struct {
	driver.Conn
	lost bool
}

func (c *mortalConn) failure() error {
	if c.lost {
		return driver.ErrBadConn
	}
	return nil
}

func (c *mortalConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

func (c *mortalConn) Commit() error   { return c.failure() }
func (c *mortalConn) Rollback() error { return c.failure() }

func (c *mortalConn) ExecContext(
	context.Context, string, []driver.NamedValue,
) (driver.Result, error) {
	return driver.RowsAffected(0), c.failure()
}

func (c *mortalConn) QueryContext(
	context.Context, string, []driver.NamedValue,
) (driver.Rows, error) {
	return noRows{}, c.failure()
}

type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }

// Rule 12: after a lost connection the rows of a group are looked for with another one, and the
// handler is the cause only if it used the connection beside open rows. A call of Rollback by the
// handler changes neither.
func TestLostConnectionOfAHandler_Rule12(t *testing.T) {
	boom := errors.New("boom")
	type row struct {
		lost, method, rows bool // the handler has lost the connection, called Rollback, had open rows
		err                error
		blind, unavailable bool
	}
	for name, c := range map[string]row{
		"lost":                       {true, false, false, boom, true, true},
		"lost, and a method":         {true, true, false, boom, true, true},
		"cancelled":                  {true, false, false, context.DeadlineExceeded, true, false},
		"cancelled, and a method":    {true, true, false, context.DeadlineExceeded, true, false},
		"a method":                   {false, true, false, boom, false, false},
		"a failure":                  {false, false, false, boom, false, false},
		"lost by rows":               {true, false, true, boom, true, false},
		"lost by rows, and a method": {true, true, true, boom, true, false},
		"rows":                       {false, false, true, boom, false, false},
		"rows, and a method":         {false, true, true, boom, false, false},
	} {
		for kind, n := range map[string]int{"a group": 3, "without a claim": 0} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				conn, d := &mortalConn{}, silentDialect()
				d.Param = func(int) string { return "?" }
				d.Micros = func(column string) string { return column }
				d.Token = d.Micros
				l := newLoan(t.Context(), conn, d)
				db := sql.OpenDB(l)
				defer db.Close()
				tx, err := db.BeginTx(context.Background(), nil)
				require.NoError(t, err)
				r := &txRun{
					s: New(db, nil, d), l: l, db: db, tx: tx,
					reqs: make([]dedup.Request, n), held: make(map[int]*decision.Record),
				}
				for i := range n {
					r.held[i] = &decision.Record{}
				}
				r.check = func(ctx context.Context) error {
					_, err := tx.ExecContext(ctx, "check")
					return err
				}
				conn.lost = c.lost
				l.overlap.Store(c.rows)
				if c.method {
					require.ErrorIs(t, tx.Rollback(), dedup.ErrTxEnded)
				}
				err = r.handlerFailed(t.Context(), c.err)
				require.ErrorIs(t, err, c.err)
				require.Equal(t, c.blind, r.blind)
				require.Equal(t, c.unavailable, errors.Is(err, dedup.ErrUnavailable))
				require.Equal(t, c.lost && c.rows, errors.Is(err, errRowsOpen))
				require.NotErrorIs(t, err, dedup.ErrTxEnded)
			})
		}
	}
}
