package outbox

import (
	"context"
	"time"
)

// PublishObserver sees the rows that are given to the producer, and their results. BeginPublish can
// change the context of the producer.
//
// The relay calls BeginPublish and EndPublish in turn, once for each call of the producer. A row of
// a failed call may be in the next call: see the documentation of the package.
type PublishObserver interface {
	// BeginPublish returns the context of the call. The result must be derived from ctx.
	BeginPublish(ctx context.Context, p *Publish) context.Context
	// EndPublish gets the context that BeginPublish returned.
	EndPublish(ctx context.Context, p *Publish)
}

// Publish is the rows of one call of [Producer].ProduceEach or of
// [OrderedProducer].ProduceInOrder, of any number of topics. ProduceEach gets at most one row of an
// aggregate. Do not keep a Publish after EndPublish, and do not change the rows.
type Publish struct {
	// Outbox is [RelayConfig].Name.
	Outbox string
	// Began is the start of the call.
	Began time.Time
	// Took is the duration of the call, in EndPublish. Zero before.
	Took time.Duration

	rows []Row
	at   []int // the indexes of the rows that are published
	errs []error
}

// Len returns the number of rows: at least one.
func (p *Publish) Len() int { return len(p.at) }

// Row returns row i. The headers of its entry have the trace of the code that added the entry.
func (p *Publish) Row(i int) *Row { return &p.rows[p.at[i]] }

// Err returns the producer's result for row i, in EndPublish. Nil is the broker's acknowledgement.
// Before EndPublish the result is nil.
func (p *Publish) Err(i int) error {
	if i < len(p.errs) {
		return p.errs[i]
	}
	return nil
}

// publishing is a call of the producer that observers watch.
type publishing struct {
	watch []PublishObserver
	ctxs  []context.Context // the result of each of watch
	seen  Publish
}

// beginPublish reports rows that are given to the producer, and returns the producer's context.
func beginPublish(
	ctx context.Context, watch []PublishObserver, p Publish,
) (context.Context, *publishing) {
	if len(watch) == 0 {
		return ctx, nil
	}
	p.Began = time.Now()
	w := &publishing{watch: watch, seen: p}
	for _, o := range watch {
		ctx = o.BeginPublish(ctx, &w.seen) //nolint:fatcontext // one for each observer
		w.ctxs = append(w.ctxs, ctx)
	}
	return ctx, w
}

// end reports the results, in the reverse order of the observers. Without observers p is nil.
func (p *publishing) end(errs []error) {
	if p == nil {
		return
	}
	p.seen.Took, p.seen.errs = time.Since(p.seen.Began), errs
	for i := len(p.watch) - 1; i >= 0; i-- {
		p.watch[i].EndPublish(p.ctxs[i], &p.seen)
	}
}
