package pgoutbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/outbox"
)

// maxQueued bounds the memory of the entries of one transaction, in bytes.
const maxQueued = 256 << 20

// ErrQueueFull means that the entries of one transaction exceed 256 MiB. No entry of the call is
// added. Use several transactions, or call [Outbox.Flush] in between. While a savepoint is set,
// Flush makes no room: its rollback would have the entries written again.
var ErrQueueFull = errors.New("pgoutbox: too much for one transaction")

// queue has the entries of a transaction until its end.
type queue struct {
	writeAll func(context.Context, pgx.Tx, []outbox.Entry) error
	log      []step
	flushed  int // how many steps of log come before the end of the last flush
	freed    int // how many steps before log were freed; a mark counts these too
	ids      outboxrow.Identities
	bytes    int  // of the entries in log
	marked   bool // a savepoint is set: entries that were written may have to be written again
}

// step is a change of the queue that the rollback of a savepoint can revert. Either an entry was
// added, or all entries so far were written.
type step struct {
	entry   outbox.Entry
	written bool
}

var _ dedup.TxWork = (*queue)(nil)

func newQueue(writeAll func(context.Context, pgx.Tx, []outbox.Entry) error) *queue {
	return &queue{writeAll: writeAll, ids: outboxrow.Identities{}}
}

// add adds copies of all entries. After an error, the queue is unchanged.
func (q *queue) add(entries []outbox.Entry) error {
	size := 0
	for i := range entries {
		size += entries[i].Size()
	}
	if q.bytes+size > maxQueued {
		return fmt.Errorf("%w: %d bytes wait, %d more are to be added, the limit is %d",
			ErrQueueFull, q.bytes, size, maxQueued)
	}
	if err := q.ids.Add(entries); err != nil {
		return err
	}
	q.bytes += size
	for i := range entries {
		q.log = append(q.log, step{entry: own(&entries[i])})
	}
	return nil
}

// own returns a copy of e that shares no memory with the caller.
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
	waiting := make([]outbox.Entry, 0, len(q.log)-q.flushed)
	for _, s := range q.log[q.flushed:] {
		waiting = append(waiting, s.entry)
	}
	if len(waiting) == 0 {
		return nil
	}
	if err := q.writeAll(ctx, t, waiting); err != nil {
		return err
	}
	q.log = append(q.log, step{written: true})
	q.flushed = len(q.log)
	if !q.marked {
		q.free()
	}
	return nil
}

// free frees the entries that were written. No savepoint is set.
func (q *queue) free() {
	if q.flushed == 0 {
		return
	}
	for i := range q.log[:q.flushed] {
		if s := &q.log[i]; !s.written {
			q.bytes -= s.entry.Size()
		}
	}
	q.log, q.freed, q.flushed = slices.Clone(q.log[q.flushed:]), q.freed+q.flushed, 0
}

// Mark implements [dedup.TxWork].
func (q *queue) Mark() int {
	q.marked = true
	return q.freed + len(q.log)
}

// Unmark notes that no savepoint is set any more.
func (q *queue) Unmark() {
	q.marked = false
	q.free()
}

// Rewind implements [dedup.TxWork].
func (q *queue) Rewind(mark int) {
	if mark == 0 { // the savepoint is older than every entry, also than those that were freed
		q.log, q.flushed, q.freed, q.bytes = nil, 0, 0, 0
		clear(q.ids)
		return
	}
	mark = max(0, mark-q.freed)
	for i := mark; i < len(q.log); i++ {
		if s := &q.log[i]; !s.written {
			q.bytes -= s.entry.Size()
			q.ids.Remove(&s.entry)
		}
	}
	clear(q.log[min(mark, len(q.log)):])
	q.log = q.log[:min(mark, len(q.log))]
	q.flushed = min(q.flushed, len(q.log))
	for q.flushed > 0 && !q.log[q.flushed-1].written {
		q.flushed--
	}
}
