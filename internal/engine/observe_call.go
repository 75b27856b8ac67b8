package engine

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// observedCall is a call of a handler. Without observers only the context is set.
type observedCall struct {
	ctx      context.Context
	r        *reporter
	call     *observe.Call // nil: no observers, or the end was reported
	contexts []context.Context
}

// observeCall reports the begin of a call.
func (r *reporter) observeCall(ctx context.Context, b *bound, in []Input) observedCall {
	w := observedCall{ctx: ctx, r: r}
	if len(r.obs.call) == 0 || len(in) == 0 {
		return w
	}
	w.call = &observe.Call{
		Events: inputs(in), Group: r.group, Type: b.Type, Batch: b.Batch,
		Transactional: b.tx != nil, Began: time.Now(),
	}
	w.contexts = make([]context.Context, len(r.obs.call))
	for i, o := range r.obs.call {
		r.protect(
			"BeginCall", func() { w.ctx = o.BeginCall(w.ctx, w.call) },
		) //nolint:fatcontext // as above
		w.contexts[i] = w.ctx //nolint:fatcontext // as above
	}
	return w
}

// end reports the end of a call, once.
func (w *observedCall) end(err error) {
	if w.call == nil {
		return
	}
	c := w.call
	w.call = nil
	c.Took, c.Err = time.Since(c.Began), err
	for i := len(w.contexts) - 1; i >= 0; i-- {
		w.r.protect("EndCall", func() { w.r.obs.call[i].EndCall(w.contexts[i], c) })
	}
}

// protect catches a panic of an observer, which would otherwise count as a panic of the handler.
func (r *reporter) protect(what string, callback func()) {
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("an observer panicked", "in", what, "panic", v)
		}
	}()
	callback()
}

// inputs implements [observe.Events].
type inputs []Input

func (l inputs) Len() int { return len(l) }

func (l inputs) Message(i int) *idemtype.Message { return l[i].Message }

func (l inputs) Key(i int) dedup.Key { return l[i].Key }

func (l inputs) Attempt(i int) int { return l[i].Attempt }
