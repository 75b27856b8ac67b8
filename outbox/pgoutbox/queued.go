package pgoutbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
)

// endTimeout bounds a rollback, which the caller's context does not.
const endTimeout = 10 * time.Second

// queuedTx is a transaction with a queue.
type queuedTx struct {
	pgx.Tx
	works []keptWork
	ended bool
}

type keptWork struct {
	key  any
	work dedup.TxWork
}

var (
	_ dedup.TxKeeper = (*queuedTx)(nil)
	_ dedup.TxKeeper = (*nestedTx)(nil)
)

// Queue returns tx with a queue: what [Outbox.Add] is given for it waits in memory until its Commit, which writes all of it in one statement
// first, sorted, so that calls of Add in any order never deadlock (rule 22). If that fails, Commit rolls back and returns why. Rollback
// drops the queue. A savepoint, by Begin, adds to the queue, and takes back what was added since if it is rolled back.
//
// End it by its own Commit; with [pgx.BeginFunc] use [Outbox.Queued] instead. If somebody else commits tx, what is queued is lost unless
// [Outbox.Flush] was called at the end of the work. A transaction that a store lends to a handler has a queue of its own: Queue returns it as it is.
func (o *Outbox) Queue(tx pgx.Tx) pgx.Tx {
	if _, ok := tx.(dedup.TxKeeper); ok {
		return tx
	}
	return &queuedTx{Tx: tx}
}

// Beginner begins transactions: a [pgxpool.Pool], a [pgx.Conn], a [pgx.Tx].
//
// [pgxpool.Pool]: https://pkg.go.dev/github.com/jackc/pgx/v5/pgxpool#Pool
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Queued returns db with transactions that have a queue, as [Outbox.Queue] makes them, for those who leave the commit to [pgx.BeginFunc]:
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

// Flush writes what is queued in tx now, for those whose commit is done elsewhere. It is the last thing before the commit, since it locks
// what the entries are about. Without a queue, or with an empty one, it does nothing. After an error tx must be rolled back.
func (o *Outbox) Flush(ctx context.Context, tx pgx.Tx) error {
	if o.wrong != nil {
		return o.wrong
	}
	q, err := o.queueOf(tx)
	if q == nil || err != nil {
		return err
	}
	return q.Flush(ctx, tx)
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

// Commit writes what is queued, then commits.
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

// giveUp rolls back although ctx may have ended. If that fails the connection is closed, and the server rolls back.
func (t *queuedTx) giveUp(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = t.Rollback(end)
}

// Rollback drops what is queued and rolls back.
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
	return n, nil
}

// nestedTx is a savepoint of a transaction with a queue.
type nestedTx struct {
	pgx.Tx
	of    *queuedTx
	marks []int // how much of each work there was; those that came later had nothing
	ended bool
}

// KeepTx implements [dedup.TxKeeper]: the queue is that of the transaction.
func (n *nestedTx) KeepTx(key any, begin func() dedup.TxWork) (dedup.TxWork, error) {
	if n.ended {
		return nil, fmt.Errorf("%w: %w", dedup.ErrTxEnded, pgx.ErrTxClosed)
	}
	return n.of.KeepTx(key, begin)
}

// Begin sets a savepoint in the savepoint.
func (n *nestedTx) Begin(ctx context.Context) (pgx.Tx, error) { return n.of.nest(ctx, n.Tx) }

// Commit releases the savepoint. What was added stays in the queue.
func (n *nestedTx) Commit(ctx context.Context) error {
	n.ended = true
	return n.Tx.Commit(ctx)
}

// Rollback takes back what was added since the savepoint was set.
func (n *nestedTx) Rollback(ctx context.Context) error {
	n.ended = true
	if err := n.Tx.Rollback(ctx); err != nil { // also if it was released before
		return err
	}
	for i, k := range n.of.works {
		mark := 0
		if i < len(n.marks) {
			mark = n.marks[i]
		}
		k.work.Rewind(mark)
	}
	return nil
}
