package pgoutbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/outbox"
)

// Add adds entries to the outbox. The events are published if tx commits, and never otherwise. The
// order within each topic and key is the order of commits. Each entry gets its ID, see
// [outbox.Entry.Identify], and the trace of ctx in its headers, see [Propagator]. The entries of
// the caller are not changed. Payloads and headers may be reused after Add has returned.
//
// The time of the write depends on tx:
//
//   - In a transaction that a store lends to a handler, in a transaction of [Outbox.Queue], and in
//     their savepoints, entries stay in memory. The commit writes them in one statement first. Add
//     may be called often, by many handlers, in any order, without a deadlock.
//   - In any other transaction Add writes at once, and locks the topics and keys until the
//     transaction ends. Call Add once, with all entries, as the last step. Transactions that call
//     Add twice can deadlock with each other (SQLSTATE 40P01). Two events with one ID are found in
//     one call only.
//
// Errors that match [outbox.ErrEntry], [outbox.ErrNoParent] or [outbox.ErrSameID], and
// [ErrQueueFull], add no entry of this call, and tx can go on. Any other error is the database's,
// and tx may be aborted. In a handler such an error matches [dedup.ErrUnavailable] if the event is
// not to blame.
//
// Safe for concurrent use with different transactions.
func (o *Outbox) Add(ctx context.Context, tx pgx.Tx, entries ...outbox.Entry) error {
	if o.wrong != nil {
		return o.wrong
	}
	if tx == nil {
		return errNoTx
	}
	if len(entries) == 0 {
		return nil
	}
	return o.rows.Add(ctx, entries, func(ready []outbox.Entry) error {
		return o.keep(ctx, tx, ready)
	})
}

// keep queues entries that were checked, or writes them at once.
func (o *Outbox) keep(ctx context.Context, tx pgx.Tx, ready []outbox.Entry) error {
	w, err := o.queueOf(tx)
	switch {
	case err != nil:
		return err
	case w != nil:
		return w.add(ready)
	}
	if len(ready) > 1 {
		if err := make(outboxrow.Identities, len(ready)).Add(ready); err != nil {
			return err
		}
	}
	return o.writeChecked(ctx, tx, ready)
}

// Flush writes the queue of tx now, for transactions that other code commits. Call Flush as the
// last step before the commit, because Flush locks the topics and keys of the entries. Without a
// queue, or with an empty one, Flush has no effect. After an error tx must be rolled back.
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

// queueOf returns the queue of tx, or nil if tx has no queue.
func (o *Outbox) queueOf(tx pgx.Tx) (*queue, error) {
	keeper, ok := tx.(dedup.TxKeeper)
	if !ok {
		return nil, nil
	}
	work, err := keeper.KeepTx(o, func() dedup.TxWork { return newQueue(o.writeChecked) })
	if err != nil {
		return nil, fmt.Errorf("pgoutbox: %w", err)
	}
	q, ok := work.(*queue)
	if !ok {
		return nil, fmt.Errorf("pgoutbox: %T keeps a %T for the outbox", tx, work)
	}
	return q, nil
}

// writeChecked writes entries that were checked.
func (o *Outbox) writeChecked(ctx context.Context, tx pgx.Tx, entries []outbox.Entry) error {
	return o.addError(ctx, tx, o.rows.Write(ctx, entries,
		func(ctx context.Context, entries []outbox.Entry) error {
			return o.insert(ctx, tx, entries)
		}))
}
