package outboxrow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// ErrNoTx is the error of an Add without a transaction.
var ErrNoTx = errors.New("no transaction: tx is nil " +
	"(a request without a key has none, see httpidem.TxFrom)")

// errAbandoned is the error of an Add that panicked, for observers.
var errAbandoned = errors.New("outbox: add panicked")

// Adder prepares entries for a table. Set the fields and call Observe before the first Add. Safe
// for concurrent use afterwards.
type Adder struct {
	// Max bounds [outbox.Entry.Size], in bytes.
	Max int
	// Propagator writes the trace of the context into headers. Nil: no trace.
	Propagator propagation.TextMapPropagator

	adders  []outbox.AddObserver
	writers []outbox.WriteObserver
}

// Observe adds observers. The error names an observer that is neither an [outbox.AddObserver] nor
// an [outbox.WriteObserver].
func (a *Adder) Observe(observers ...outbox.Observer) (err error) {
	for _, w := range observers {
		adder, adds := w.(outbox.AddObserver)
		writer, writes := w.(outbox.WriteObserver)
		if adds {
			a.adders = append(a.adders, adder)
		}
		if writes {
			a.writers = append(a.writers, writer)
		}
		if !adds && !writes {
			err = fmt.Errorf("option Observers: "+
				"%T is neither an outbox.AddObserver nor an outbox.WriteObserver", w)
		}
	}
	return err
}

// Add gives copies of entries to keep, as they will be published, and returns the error of keep.
// The payloads are the caller's. If an entry is refused, keep is not called.
func (a *Adder) Add(
	ctx context.Context, entries []outbox.Entry, keep func([]outbox.Entry) error,
) error {
	if len(a.adders) == 0 {
		return a.add(ctx, entries, nil, keep)
	}
	w := &adding{watch: a.adders}
	err := errAbandoned // if keep panics
	defer func() { w.end(err) }()
	err = a.add(ctx, entries, w, keep)
	return err
}

// add does the work of Add. watch may be nil.
func (a *Adder) add(
	ctx context.Context, entries []outbox.Entry, watch *adding, keep func([]outbox.Entry) error,
) error {
	parent, ok := dedup.ParentFrom(ctx)
	trace := a.trace(ctx)
	ready := slices.Clone(entries)
	for i := range ready {
		e := &ready[i]
		if err := e.Identify(parent, ok); err != nil {
			return err
		}
		if watch != nil {
			trace = a.trace(watch.begin(ctx, e))
		}
		if len(trace) > 0 && !hasAny(e.Headers, a.Propagator.Fields()) {
			e.Headers = slices.Concat(e.Headers, trace)
		}
		if err := e.Check(a.Max); err != nil {
			return err
		}
	}
	return keep(ready)
}

// trace returns the headers that carry the trace of ctx.
func (a *Adder) trace(ctx context.Context) carrier {
	var c carrier
	if a.Propagator != nil {
		a.Propagator.Inject(ctx, &c)
	}
	return c
}

// Write calls insert, which inserts entries, and then the observers.
func (a *Adder) Write(
	ctx context.Context, entries []outbox.Entry,
	insert func(context.Context, []outbox.Entry) error,
) error {
	if len(a.writers) == 0 {
		return insert(ctx, entries)
	}
	began := time.Now()
	err := insert(ctx, entries)
	seen := outbox.Write{Entries: entries, Took: time.Since(began), Err: err}
	for _, w := range a.writers {
		w.ObserveWrite(ctx, seen)
	}
	return err
}

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

// begin calls the observers, and returns the context with the trace that the entry carries.
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
