package pgstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// handlerTx is the transaction as a handler sees it. It cannot be ended, and it is of no use after the handler
// returned, even to a goroutine that was left behind: without this check its next statement would run in somebody
// else's transaction.
type handlerTx struct {
	pgx.Tx // LargeObjects, Conn, and what a later pgx adds
	closed atomic.Bool
	// marked says that the session has another name inside the transaction than outside. The server reports each change
	// of it by itself, so that the end of the transaction shows although another one has begun (P-13).
	marked  bool
	outside string
	points  int // savepoints that were set
	works   []keptWork
}

// nameParameter is the one parameter that a transaction may change without changing what a handler sees, and that the
// server reports.
const nameParameter = "application_name"

var (
	_ dedup.TxChecker   = (*handlerTx)(nil)
	_ dedup.Savepointer = (*handlerTx)(nil)
)

func (t *handlerTx) close() { t.closed.Store(true) }

// CheckTx implements [dedup.TxChecker]. It reads what the server said last. After the handler has returned, when the
// connection may be somebody else's, its error matches [dedup.ErrTxEnded].
func (t *handlerTx) CheckTx() error {
	if t.closed.Load() {
		return fmt.Errorf("pgstore: %w: %w", dedup.ErrTxEnded, pgx.ErrTxClosed)
	}
	return t.state()
}

func (t *handlerTx) state() error {
	c := t.Conn()
	if c.IsClosed() {
		return fmt.Errorf("pgstore: connection lost while the handler ran: %w", dedup.ErrUnavailable)
	}
	switch c.PgConn().TxStatus() {
	case 'T':
		if t.marked && c.PgConn().ParameterStatus(nameParameter) == t.outside {
			return fmt.Errorf("pgstore: %w, and began another", dedup.ErrTxEnded)
		}
		return nil
	case 'I':
		return fmt.Errorf("pgstore: %w", dedup.ErrTxEnded)
	default: // the server would answer COMMIT with ROLLBACK (P-12)
		return fmt.Errorf("pgstore: %w", dedup.ErrTxAborted)
	}
}

func (t *handlerTx) Commit(context.Context) error   { return ErrTxOwned }
func (t *handlerTx) Rollback(context.Context) error { return ErrTxOwned }

func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return t.nest(ctx, t.Tx)
}

func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string,
	rows pgx.CopyFromSource) (int64, error) {
	if t.closed.Load() {
		return 0, pgx.ErrTxClosed
	}
	return t.Tx.CopyFrom(ctx, table, columns, rows)
}

func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.closed.Load() {
		return pgx.FailedBatchResults(b, pgx.ErrTxClosed)
	}
	return t.Tx.SendBatch(ctx, b)
}

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if t.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return t.Tx.Prepare(ctx, name, sql)
}

func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if t.closed.Load() {
		return pgconn.CommandTag{}, pgx.ErrTxClosed
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if t.closed.Load() {
		return closedRows{pgx.ErrTxClosed}, pgx.ErrTxClosed
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if t.closed.Load() {
		return closedRows{pgx.ErrTxClosed}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

// closedRows are the rows of a transaction that is closed, or that cannot be asked. pgx returns rows together with an error, and so
// it is done here: some callers look at the rows only.
type closedRows struct{ err error }

func (closedRows) Close()                                       {}
func (r closedRows) Err() error                                 { return r.err }
func (closedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (closedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (closedRows) Next() bool                                   { return false }
func (r closedRows) Scan(...any) error                          { return r.err }
func (r closedRows) Values() ([]any, error)                     { return nil, r.err }
func (closedRows) RawValues() [][]byte                          { return nil }
func (closedRows) Conn() *pgx.Conn                              { return nil }
func (closedRows) TypeMap() *pgtype.Map                         { return pgtype.NewMap() }
