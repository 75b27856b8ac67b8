package pgoutbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// maxQueued bounds what the entries of one transaction take in memory.
const maxQueued = 256 << 20

// ErrQueueFull says that more than 256 MiB are to be added in one transaction. Nothing of the call is added. Use several transactions, or call
// [Outbox.Flush] in between.
var ErrQueueFull = errors.New("pgoutbox: too much for one transaction")

// queue is what waits for the end of a transaction.
type queue struct {
	box   *Outbox
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
	work, err := keeper.KeepTx(o, func() dedup.TxWork { return &queue{box: o, ids: identities{}} })
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
	begins := len(q.log)
	for begins > 0 && !q.log[begins-1].written {
		begins--
	}
	waiting := make([]outbox.Entry, 0, len(q.log)-begins)
	for _, s := range q.log[begins:] {
		waiting = append(waiting, s.entry)
	}
	if len(waiting) == 0 {
		return nil
	}
	if err := q.box.write(ctx, t, waiting); err != nil {
		return q.box.addError(ctx, t, err)
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
