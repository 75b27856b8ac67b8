package pgoutbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// errAbandoned is what observers are told of an Add that did not return.
var errAbandoned = errors.New("pgoutbox: add panicked")

// adding tells observers of the entries of one Add.
type adding struct {
	watch []outbox.AddObserver
	begun []begun
}

// begun is what one observer was told of an entry.
type begun struct {
	by    outbox.AddObserver
	ctx   context.Context //nolint:containedctx // the observer's own, kept for the end
	entry *outbox.Entry
}

// begin tells all of an entry, and returns the context whose trace it is to carry.
func (a *adding) begin(ctx context.Context, e *outbox.Entry) context.Context {
	told := *e // what becomes of e, its headers above all, is the outbox's
	for _, o := range a.watch {
		ctx = o.BeginAdd(ctx, &told) //nolint:fatcontext // one for each observer
		a.begun = append(a.begun, begun{o, ctx, &told})
	}
	return ctx
}

// end tells what came of it, those first who were told last.
func (a *adding) end(err error) {
	for i := len(a.begun) - 1; i >= 0; i-- {
		b := &a.begun[i]
		b.by.EndAdd(b.ctx, b.entry, err)
	}
}

// write is insert, watched.
func (o *Outbox) write(ctx context.Context, tx pgx.Tx, entries []outbox.Entry) error {
	if len(o.writers) == 0 {
		return o.insert(ctx, tx, entries)
	}
	began := time.Now()
	err := o.insert(ctx, tx, entries)
	told := outbox.Write{Entries: entries, Took: time.Since(began), Err: err}
	for _, w := range o.writers {
		w.ObserveWrite(ctx, told)
	}
	return err
}
