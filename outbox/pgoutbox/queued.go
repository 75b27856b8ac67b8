package pgoutbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
)

// endTimeout bounds a rollback or a close, which the context of the caller does not bound.
const endTimeout = 10 * time.Second

// queuedTx is a transaction that writes its queues before the commit.
type queuedTx struct {
	pgx.Tx
	works []keptWork
	open  []*nestedTx // the savepoints that are set, the outermost first
	ended bool
}

// unmarker is an ability of kept work: it learns that no savepoint is set any more.
type unmarker interface{ Unmark() }

type keptWork struct {
	key  any
	work dedup.TxWork
}

var (
	_ dedup.TxKeeper = (*queuedTx)(nil)
	_ dedup.TxKeeper = (*nestedTx)(nil)
)

// Queue returns tx with a queue. [Outbox.Add] keeps entries in the queue until Commit, which first
// writes all of them in one sorted statement. Calls of Add in any order therefore never deadlock.
// If the write fails, Commit rolls back and returns the error. Rollback drops the queue.
//
// A savepoint, made by Begin, adds to the same queue. A rollback of the savepoint removes the
// entries added since.
//
// End the transaction by its own Commit; with [pgx.BeginFunc] use [Outbox.Queued]. If other code
// commits tx itself, call [Outbox.Flush] before: otherwise the queue is lost. A transaction that a
// store lends to a handler already has a queue: Queue returns it unchanged.
func (o *Outbox) Queue(tx pgx.Tx) pgx.Tx {
	if _, ok := tx.(dedup.TxKeeper); ok {
		return tx
	}
	return &queuedTx{Tx: tx}
}

// Beginner begins transactions. A [pgxpool.Pool], a [pgx.Conn] and a [pgx.Tx] are Beginners.
//
// [pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Queued returns db with transactions that have a queue, as of [Outbox.Queue]. Use it with
// [pgx.BeginFunc], which does the commit:
//
//	err := pgx.BeginFunc(ctx, box.Queued(pool), func(tx pgx.Tx) error {
//		... // statements, and box.Add(ctx, tx, ...) in any order
//	})
func (o *Outbox) Queued(db Beginner) Beginner { return queuedDB{o, db} }

type queuedDB struct {
	box *Outbox
	db  Beginner
}

// Begin implements [Beginner].
func (q queuedDB) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := q.db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return q.box.Queue(tx), nil
}

// KeepTx implements [dedup.TxKeeper].
func (t *queuedTx) KeepTx(key any, begin func() dedup.TxWork) (dedup.TxWork, error) {
	if t.ended {
		return nil, fmt.Errorf("%w: %w", dedup.ErrTxEnded, pgx.ErrTxClosed)
	}
	for _, k := range t.works {
		if k.key == key {
			return k.work, nil
		}
	}
	w := begin()
	t.works = append(t.works, keptWork{key, w})
	return w, nil
}

// Commit writes the queues, then commits.
func (t *queuedTx) Commit(ctx context.Context) error {
	for _, k := range t.works {
		if err := k.work.Flush(ctx, t.Tx); err != nil {
			t.giveUp(ctx)
			return err
		}
	}
	t.works, t.ended = nil, true
	return t.Tx.Commit(ctx)
}

// giveUp rolls back, also if ctx has ended. If that fails, pgx closes the connection and the server
// rolls back.
func (t *queuedTx) giveUp(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = t.Rollback(end)
}

// Rollback drops the queues and rolls back.
func (t *queuedTx) Rollback(ctx context.Context) error {
	t.works, t.ended = nil, true
	return t.Tx.Rollback(ctx)
}

// Begin sets a savepoint.
func (t *queuedTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.nest(ctx, t.Tx) }

func (t *queuedTx) nest(ctx context.Context, in pgx.Tx) (pgx.Tx, error) {
	tx, err := in.Begin(ctx)
	if err != nil {
		return nil, err
	}
	n := &nestedTx{Tx: tx, of: t}
	for _, k := range t.works {
		n.marks = append(n.marks, k.work.Mark())
	}
	t.open = append(t.open, n)
	return n, nil
}

// close notes that a savepoint has ended, and with it those inside.
func (t *queuedTx) close(n *nestedTx) {
	i := slices.Index(t.open, n)
	if i < 0 {
		return
	}
	clear(t.open[i:])
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

// nestedTx is a savepoint of a transaction with a queue.
type nestedTx struct {
	pgx.Tx
	of    *queuedTx
	marks []int // the length of each queue at the savepoint; later queues were empty
	ended bool
}

// KeepTx implements [dedup.TxKeeper] with the queues of the transaction.
func (n *nestedTx) KeepTx(key any, begin func() dedup.TxWork) (dedup.TxWork, error) {
	if n.ended {
		return nil, fmt.Errorf("%w: %w", dedup.ErrTxEnded, pgx.ErrTxClosed)
	}
	return n.of.KeepTx(key, begin)
}

// Begin sets a savepoint in the savepoint.
func (n *nestedTx) Begin(ctx context.Context) (pgx.Tx, error) { return n.of.nest(ctx, n.Tx) }

// Commit releases the savepoint. Entries stay in the queue.
func (n *nestedTx) Commit(ctx context.Context) error {
	n.ended = true
	if err := n.Tx.Commit(ctx); err != nil {
		return err
	}
	n.of.close(n)
	return nil
}

// Rollback removes the entries that were added since the savepoint.
func (n *nestedTx) Rollback(ctx context.Context) error {
	n.ended = true
	if err := n.Tx.Rollback(ctx); err != nil { // such as after a release
		return err
	}
	for i, k := range n.of.works {
		mark := 0
		if i < len(n.marks) {
			mark = n.marks[i]
		}
		k.work.Rewind(mark)
	}
	n.of.close(n)
	return nil
}
