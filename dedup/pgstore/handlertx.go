package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// handlerTx is the transaction that a handler gets. The handler cannot end the transaction.
// After the handler has returned, every call fails. Otherwise a goroutine that was left behind
// could run statements in a later transaction of another event.
type handlerTx struct {
	pgx.Tx // LargeObjects, Conn, and methods of a later pgx
	closed atomic.Bool
	// marked: the session has another name inside the transaction than outside. The server reports
	// each change of the name. So the end of the transaction shows even if another one has begun
	// (P-13).
	marked  bool
	outside string
	points  int   // number of savepoints so far
	open    []int // the savepoints that are set, by their number, the outermost first
	works   []keptWork
}

// nameParameter is a parameter that the server reports. A transaction may change the parameter
// without an effect on a handler.
const nameParameter = "application_name"

var (
	_ dedup.TxChecker   = (*handlerTx)(nil)
	_ dedup.Savepointer = (*handlerTx)(nil)
)

// keptWork is work for the end of the transaction.
type keptWork struct {
	key  any
	work dedup.TxWork
}

var errNoWork = errors.New("pgstore: begin returned no work to keep")

var (
	_ dedup.TxKeeper  = (*handlerTx)(nil)
	_ dedup.TxKeeper  = (*nestedTx)(nil)
	_ dedup.TxChecker = (*nestedTx)(nil)
)

func (t *handlerTx) close() { t.closed.Store(true) }

// CheckTx implements [dedup.TxChecker]. CheckTx reads the last status that the server sent,
// without a round trip. After the handler has returned, the error matches [dedup.ErrTxEnded].
func (t *handlerTx) CheckTx() error {
	if t.closed.Load() {
		return fmt.Errorf("pgstore: %w: %w", dedup.ErrTxEnded, pgx.ErrTxClosed)
	}
	return t.state()
}

func (t *handlerTx) state() error {
	c := t.Conn()
	outside := t.marked && c.PgConn().ParameterStatus(nameParameter) == t.outside
	return txState(c.PgConn().TxStatus(), outside, c.IsClosed())
}

// txState returns the state of a lent transaction. The status is the last one that the server has
// sent, also on a lost connection. So the loss does not hide an end before it. outside: the session
// has its name outside the transaction. In a transaction that failed, the name tells nothing,
// because the server resets the name at the failure.
func txState(status byte, outside, lost bool) error {
	switch {
	case status == 'I':
		return fmt.Errorf("pgstore: %w", dedup.ErrTxEnded)
	case status == 'T' && outside:
		return fmt.Errorf("pgstore: %w, and began another", dedup.ErrTxEnded)
	case lost:
		return fmt.Errorf("pgstore: connection lost while the handler ran: %w",
			dedup.ErrUnavailable)
	case status == 'T':
		return nil
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

func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription,
	error) {
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

// KeepTx implements [dedup.TxKeeper].
func (t *handlerTx) KeepTx(key any, begin func() dedup.TxWork) (dedup.TxWork, error) {
	if t.closed.Load() {
		return nil, fmt.Errorf("pgstore: %w: %w", dedup.ErrTxEnded, pgx.ErrTxClosed)
	}
	for _, k := range t.works {
		if k.key == key {
			return k.work, nil
		}
	}
	w := begin()
	if w == nil {
		return nil, errNoWork
	}
	t.works = append(t.works, keptWork{key, w})
	return w, nil
}

// unmarker is an ability of kept work: it learns that no savepoint is set any more.
type unmarker interface{ Unmark() }

// mark notes a new savepoint, and returns the current size of each work.
func (t *handlerTx) mark() (point int, marks []int) {
	t.points++
	t.open = append(t.open, t.points)
	marks = make([]int, len(t.works))
	for i, k := range t.works {
		marks[i] = k.work.Mark()
	}
	return t.points, marks
}

// unmark notes that a savepoint has ended, and with it those inside.
func (t *handlerTx) unmark(point int) {
	i := slices.Index(t.open, point)
	if i < 0 {
		return
	}
	t.open = t.open[:i]
	if i > 0 {
		return
	}
	for _, k := range t.works {
		if w, ok := k.work.(unmarker); ok {
			w.Unmark()
		}
	}
}

// rewind drops the work that was added after marks.
func (t *handlerTx) rewind(marks []int) {
	for i, k := range t.works {
		mark := 0
		if i < len(marks) {
			mark = marks[i]
		}
		k.work.Rewind(mark)
	}
}

// nestedTx is a savepoint that a handler sets with Begin. A rollback of the savepoint drops the
// work that was kept since.
type nestedTx struct {
	pgx.Tx // of the driver, which knows whether the savepoint has ended
	of     *handlerTx
	point  int
	marks  []int
	ended  bool
}

func (t *handlerTx) nest(ctx context.Context, in pgx.Tx) (pgx.Tx, error) {
	tx, err := in.Begin(ctx)
	if err != nil {
		return nil, err
	}
	point, marks := t.mark()
	return &nestedTx{Tx: tx, of: t, point: point, marks: marks}, nil
}

func (n *nestedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if n.of.closed.Load() {
		return nil, pgx.ErrTxClosed
	}
	return n.of.nest(ctx, n.Tx)
}

func (n *nestedTx) Commit(ctx context.Context) error {
	n.ended = true
	if err := n.Tx.Commit(ctx); err != nil {
		return err
	}
	n.of.unmark(n.point)
	return nil
}

func (n *nestedTx) Rollback(ctx context.Context) error {
	n.ended = true
	if err := n.Tx.Rollback(ctx); err != nil { // also after Commit
		return err
	}
	n.of.rewind(n.marks)
	n.of.unmark(n.point)
	return nil
}

// CheckTx implements [dedup.TxChecker] for the transaction around the savepoint.
func (n *nestedTx) CheckTx() error { return n.of.CheckTx() }

// KeepTx implements [dedup.TxKeeper]. The work belongs to the transaction around the savepoint.
func (n *nestedTx) KeepTx(key any, begin func() dedup.TxWork) (dedup.TxWork, error) {
	if n.ended && !n.of.closed.Load() {
		return nil, fmt.Errorf("pgstore: savepoint: %w", pgx.ErrTxClosed)
	}
	return n.of.KeepTx(key, begin)
}
