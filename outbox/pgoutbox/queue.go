package pgoutbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

const (
	// maxQueued bounds what the entries of one transaction take in memory.
	maxQueued = 256 << 20
	// endTimeout bounds a rollback, which the caller's context does not.
	endTimeout = 10 * time.Second
)

// ErrQueueFull says that more than 256 MiB are to be added in one transaction. Nothing of the call is added. Use several transactions, or call
// [Outbox.Flush] in between.
var ErrQueueFull = errors.New("pgoutbox: too much for one transaction")

// queue is what waits for the end of a transaction.
type queue struct {
	box *Outbox
	// lent says that the transaction is a ledger's, with its time-outs.
	lent  bool
	log   []step
	ids   identities
	bytes int
	// marked says that a savepoint was set: what was written may have to be written again.
	marked bool
}

// step is something that happened to the queue, so that a savepoint can take it back: an entry was added, or what had been added
// until then was written.
type step struct {
	entry   outbox.Entry
	written bool
}

var _ dedup.TxWork = (*queue)(nil)

// queueOf returns the queue of tx, or nil if it can have none.
func (o *Outbox) queueOf(tx pgx.Tx) (*queue, error) {
	keeper, ok := tx.(dedup.TxKeeper)
	if !ok {
		return nil, nil
	}
	_, own := tx.(*queuedTx)
	work, err := keeper.KeepTx(o, func() dedup.TxWork { return &queue{box: o, lent: !own, ids: identities{}} })
	if err != nil {
		return nil, fmt.Errorf("pgoutbox: %w", err)
	}
	q, ok := work.(*queue)
	if !ok {
		return nil, fmt.Errorf("pgoutbox: %T keeps a %T for the outbox", tx, work)
	}
	return q, nil
}

func (q *queue) add(entries []outbox.Entry) error {
	size := 0
	for i := range entries {
		size += entries[i].Size()
	}
	if q.bytes+size > maxQueued {
		return fmt.Errorf("%w: %d bytes wait, %d more are to be added, the limit is %d", ErrQueueFull, q.bytes, size, maxQueued)
	}
	if err := q.ids.add(entries); err != nil {
		return err
	}
	q.bytes += size
	for i := range entries {
		q.log = append(q.log, step{entry: own(&entries[i])})
	}
	return nil
}

// own returns an entry that shares no memory with the caller's.
func own(e *outbox.Entry) outbox.Entry {
	c := *e
	c.Payload = bytes.Clone(e.Payload)
	c.Headers = make([]idem.Header, len(e.Headers))
	for i, h := range e.Headers {
		c.Headers[i] = idem.Header{Key: h.Key, Value: bytes.Clone(h.Value)}
	}
	return c
}

// Flush implements [dedup.TxWork].
func (q *queue) Flush(ctx context.Context, tx any) error {
	t, ok := tx.(pgx.Tx)
	if !ok {
		return fmt.Errorf("pgoutbox: %T is no transaction of pgx", tx)
	}
	var waiting []outbox.Entry
	for i := len(q.log) - 1; i >= 0 && !q.log[i].written; i-- {
		waiting = append(waiting, q.log[i].entry)
	}
	if len(waiting) == 0 {
		return nil
	}
	for i, j := 0, len(waiting)-1; i < j; i, j = i+1, j-1 {
		waiting[i], waiting[j] = waiting[j], waiting[i]
	}
	if err := q.box.insert(ctx, t, waiting, q.lent); err != nil {
		return addError(ctx, t, err)
	}
	if q.marked {
		q.log = append(q.log, step{written: true})
	} else {
		q.log, q.bytes = nil, 0
	}
	return nil
}

// Mark implements [dedup.TxWork].
func (q *queue) Mark() int {
	q.marked = true
	return len(q.log)
}

// Rewind implements [dedup.TxWork].
func (q *queue) Rewind(mark int) {
	for i := mark; i < len(q.log); i++ {
		if s := &q.log[i]; !s.written {
			q.bytes -= s.entry.Size()
			delete(q.ids, identityOf(&s.entry))
		}
	}
	clear(q.log[min(mark, len(q.log)):])
	q.log = q.log[:min(mark, len(q.log))]
	if mark == 0 { // also what was written and is not in the log any longer
		clear(q.ids)
	}
}

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

var _ dedup.TxKeeper = (*queuedTx)(nil)

// Queue returns tx with a queue: what [Outbox.Add] is given for it waits in memory until its Commit, which writes all of it in one statement
// first, sorted, so that calls of Add in any order never deadlock (rule 22). If that fails, Commit rolls back and returns why. Rollback
// drops the queue. A savepoint, by Begin, has no queue: Add writes to it at once.
//
// End it by its own Commit. If somebody else commits tx, such as [pgx.BeginFunc], what is queued is lost unless [Outbox.Flush] was called at
// the end of the work. A transaction that a ledger lends to a handler has a queue of its own: Queue returns it as it is.
func (o *Outbox) Queue(tx pgx.Tx) pgx.Tx {
	if _, ok := tx.(dedup.TxKeeper); ok {
		return tx
	}
	return &queuedTx{Tx: tx}
}

// Flush writes what is queued in tx now, for those whose commit is done elsewhere. It is the last thing before the commit, since it locks
// what the entries are about. Without a queue, or with an empty one, it does nothing. After an error tx must be rolled back.
func (o *Outbox) Flush(ctx context.Context, tx pgx.Tx) error {
	if o.wrong != nil {
		return o.wrong
	}
	w, err := o.queueOf(tx)
	if w == nil || err != nil {
		return err
	}
	return w.Flush(ctx, tx)
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
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
			defer cancel()
			_ = t.Rollback(end) // if it fails the connection is closed, and the server rolls back
			return err
		}
	}
	t.works, t.ended = nil, true
	return t.Tx.Commit(ctx)
}

// Rollback drops what is queued and rolls back.
func (t *queuedTx) Rollback(ctx context.Context) error {
	t.works, t.ended = nil, true
	return t.Tx.Rollback(ctx)
}
