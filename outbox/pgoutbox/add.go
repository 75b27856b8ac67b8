package pgoutbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
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
	if len(o.adders) == 0 {
		return o.add(ctx, tx, entries, nil)
	}
	w := &adding{watch: o.adders}
	err := errAbandoned // if add panics
	defer func() { w.end(err) }()
	err = o.add(ctx, tx, entries, w)
	return err
}

// add does the work of Add. watch may be nil.
func (o *Outbox) add(ctx context.Context, tx pgx.Tx, entries []outbox.Entry, watch *adding) error {
	ready, err := o.prepare(ctx, entries, watch)
	if err != nil {
		return err
	}
	w, err := o.queueOf(tx)
	switch {
	case err != nil:
		return err
	case w != nil:
		return w.add(ready)
	}
	if len(ready) > 1 {
		if err := make(identities, len(ready)).add(ready); err != nil {
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

// queueOf returns the queue of tx, or nil if tx has none.
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
	return o.addError(ctx, tx, o.write(ctx, tx, entries))
}

// prepare returns copies of entries as they will be published. The payloads are the caller's.
func (o *Outbox) prepare(
	ctx context.Context, entries []outbox.Entry, watch *adding,
) ([]outbox.Entry, error) {
	parent, ok := dedup.ParentFrom(ctx)
	trace := o.trace(ctx)
	ready := slices.Clone(entries)
	for i := range ready {
		e := &ready[i]
		if err := e.Identify(parent, ok); err != nil {
			return nil, err
		}
		if watch != nil {
			trace = o.trace(watch.begin(ctx, e))
		}
		if len(trace) > 0 && !hasAny(e.Headers, o.propagator.Fields()) {
			e.Headers = slices.Concat(e.Headers, trace)
		}
		if err := e.Check(o.max); err != nil {
			return nil, err
		}
	}
	return ready, nil
}

// trace returns the headers that carry the trace of ctx.
func (o *Outbox) trace(ctx context.Context) carrier {
	var c carrier
	if o.propagator != nil {
		o.propagator.Inject(ctx, &c)
	}
	return c
}
