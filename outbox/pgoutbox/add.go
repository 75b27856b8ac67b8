package pgoutbox

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// Add lets entries leave when tx commits, and never if it does not. Each entry gets its ID, see [outbox.Entry.Identify], and the trace
// of ctx in its headers, see [Propagator]; entries themselves stay as they are. What Add returns nil for is in the outbox if and only if tx
// commits, in the order of commits within each topic and key (rule 22). How depends on tx:
//
//   - In the transaction that a store lends to a handler, in one of [Outbox.Queue], and in their savepoints, entries are kept in memory
//     and written in one statement just before the commit. Add may be called often, by many handlers, in any order: nothing deadlocks.
//   - In any other transaction they are written at once, and lock their topics and keys until it ends. Call Add once
//     with all entries, at the end: transactions that call it twice can wait for each other crosswise, which the server ends with error
//     40P01 (deadlock detected), and what comes after Add makes others wait. Two events with one ID are found in one call only.
//
// Payloads and headers may be reused when Add has returned.
//
// Errors that match [outbox.ErrEntry], [outbox.ErrNoParent] or [outbox.ErrSameID] add nothing of this call and leave tx as it was. Others
// are the database's; after them tx may be of no use. In a handler they match [dedup.ErrUnavailable] if no event is to blame.
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
	err := errAbandoned // if it panics
	defer func() { w.end(err) }()
	err = o.add(ctx, tx, entries, w)
	return err
}

// add is Add, watched if watch is not nil.
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
	if err := make(identities, len(ready)).add(ready); err != nil {
		return err
	}
	return o.addError(ctx, tx, o.write(ctx, tx, ready))
}

// prepare returns copies of entries that are as they will be published. Payloads are shared with the caller.
func (o *Outbox) prepare(ctx context.Context, entries []outbox.Entry, watch *adding) ([]outbox.Entry, error) {
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

// trace are the headers that carry the trace of ctx.
func (o *Outbox) trace(ctx context.Context) carrier {
	var c carrier
	if o.propagator != nil {
		o.propagator.Inject(ctx, &c)
	}
	return c
}

// identity is what consumers know an event by: to them, one ID of two types is two events.
type identity struct{ kind, id string }

func identityOf(e *outbox.Entry) identity { return identity{e.Type, e.ID} }

// identities are those of one transaction, with what they are about.
type identities map[identity]outbox.Aggregate

// add adds all of entries, or nothing and returns an error that matches [outbox.ErrSameID].
func (ids identities) add(entries []outbox.Entry) error {
	for i := range entries {
		e := &entries[i]
		first, taken := ids[identityOf(e)]
		if !taken {
			ids[identityOf(e)] = outbox.Aggregate{Topic: e.Topic, Key: e.Key}
			continue
		}
		ids.remove(entries[:i])
		return fmt.Errorf("%w: %.100q of type %.100q, for topic %q with key %.100q and for topic %q with key %.100q: consumers would drop "+
			"the second; tell them apart by Entry.Name, or leave one out", outbox.ErrSameID, e.ID, e.Type, first.Topic, first.Key, e.Topic, e.Key)
	}
	return nil
}

func (ids identities) remove(entries []outbox.Entry) {
	for i := range entries {
		delete(ids, identityOf(&entries[i]))
	}
}
