package pgoutbox

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// errAbandoned is the error of an Add that panicked, for observers.
var errAbandoned = errors.New("pgoutbox: add panicked")

// adding is one call of Add that observers watch.
type adding struct {
	watch []outbox.AddObserver
	begun []begun
}

// begun is a BeginAdd of one observer.
type begun struct {
	by    outbox.AddObserver
	ctx   context.Context //nolint:containedctx // the result of BeginAdd, for EndAdd
	entry *outbox.Entry
}

// begin calls the observers, and returns the context whose trace the entry carries.
func (a *adding) begin(ctx context.Context, e *outbox.Entry) context.Context {
	seen := *e // a copy: the outbox changes e, such as its headers
	for _, o := range a.watch {
		ctx = o.BeginAdd(ctx, &seen) //nolint:fatcontext // one for each observer
		a.begun = append(a.begun, begun{o, ctx, &seen})
	}
	return ctx
}

// end calls the observers in the reverse order, with the result of Add.
func (a *adding) end(err error) {
	for i := len(a.begun) - 1; i >= 0; i-- {
		b := &a.begun[i]
		b.by.EndAdd(b.ctx, b.entry, err)
	}
}

// write inserts entries, and calls the observers.
func (o *Outbox) write(ctx context.Context, tx pgx.Tx, entries []outbox.Entry) error {
	if len(o.writers) == 0 {
		return o.insert(ctx, tx, entries)
	}
	began := time.Now()
	err := o.insert(ctx, tx, entries)
	seen := outbox.Write{Entries: entries, Took: time.Since(began), Err: err}
	for _, w := range o.writers {
		w.ObserveWrite(ctx, seen)
	}
	return err
}
