package idem

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/idem-go/idem/internal/engine"
	"github.com/idem-go/idem/internal/mark"
)

// HandlerFunc handles one call of a handler: a [Middleware], or the handler itself.
type HandlerFunc func(ctx context.Context, c *Call) error

// Middleware wraps the handlers of a router, see [Router.Use]. A middleware is called once for each
// handler, at the registration of the handler. The function that it returns is called for each call
// of the handler, and must be safe for concurrent use. That function may:
//
//   - call next once, with ctx or a context derived from ctx, and return its result;
//   - refuse the call: return an error without a call of next. The error means the same as an error
//     of the handler. Mark it with [NotApplied] if a run at a later time is safe, which keeps the
//     event from being in doubt under [DeadLetterUncertain];
//   - end the call without the handler: [Call.Handled], then return nil.
//
// Without a call of next and without [Call.Handled], nil is not a success: the call fails with
// [ErrNextNotCalled]. So a forgotten call of next loses no event.
//
// The result of the outermost middleware is the result of the handler, with three consequences. A
// [BatchError] must be returned as it is, or wrapped with %w. An error after a success of next
// makes the event run again. A nil in place of an error of next makes the event a handled one.
//
// A panic passes through and means the same as without middleware. A middleware that recovers a
// panic decides by its own error; nil after a panic is still a panic. For a handler in a
// transaction, the middleware runs in that transaction, and may run again with it.
//
// The time-out of the handler includes its middleware.
type Middleware func(next HandlerFunc) HandlerFunc

// The errors of middleware. Match them with errors.Is.
var (
	// ErrNextNotCalled means that a middleware returned nil, but neither called next nor
	// [Call.Handled].
	ErrNextNotCalled = errors.New(
		"middleware returned nil without the handler: call next, or Call.Handled before nil")
	// ErrNextTwice means that a middleware called next again. The handler did not run again. If the
	// first run had failed, the error also matches that failure and means the same. Otherwise the
	// error is [Permanent], so that the event becomes a dead letter and its effect is not repeated.
	//
	// Leave retries to the processor ([Retry]), because a claim is renewed and counted by attempt.
	ErrNextTwice = errors.New("middleware called next twice, the handler ran once")
)

// Use adds middleware to r. The first one is the outermost. A group of r ([Router.With]) has the
// middleware of r, and that of the group inside. All shapes of handlers have the middleware: [On],
// [OnTx], [OnBatch] and [OnBatchTx]. The function of [Router.NotFound] runs without middleware.
//
// Call Use before the registration of handlers on r and on groups of r. A later call is a mistake
// that [NewProcessor] reports, because some handlers would lack the middleware. So is a nil
// middleware.
//
// Handlers without middleware are called directly.
func (r *Router) Use(middleware ...Middleware) {
	fail := func(what string) {
		r.table.Problems = append(r.table.Problems, fmt.Errorf("%s: Use: %s", callSite(3), what))
	}
	if r.sealed {
		fail("a handler is registered already: call Use before On, OnTx, OnBatch and OnBatchTx")
	}
	for _, m := range middleware {
		if m == nil {
			fail("middleware is nil")
			return
		}
	}
	r.middleware = append(r.middleware, middleware...)
}

// chain returns the middleware of the handlers of r, the outermost first.
func (r *Router) chain() []Middleware {
	if r == nil {
		return nil
	}
	return append(r.parent.chain(), r.middleware...)
}

// seal notes that a handler of r is registered.
func (r *Router) seal() {
	for at := r; at != nil; at = at.parent {
		at.sealed = true
	}
}

// around returns call with middleware, or call itself without any.
func around(chain []Middleware, h *engine.Handler, call engine.Invocation) engine.Invocation {
	if len(chain) == 0 {
		return call
	}
	next := HandlerFunc(func(ctx context.Context, c *Call) error { return c.run(ctx, call) })
	for i := len(chain) - 1; i >= 0; i-- {
		if next = chain[i](next); next == nil {
			h.Problems = append(h.Problems, fmt.Errorf("middleware %d returned nil", i+1))
			return call
		}
	}
	return func(ctx context.Context, tx any, in []engine.Input) error {
		c := &Call{handler: h, tx: tx, in: in}
		return c.result(next(ctx, c))
	}
}

// Call is one call of a handler, as middleware sees it: with one event or, for a batch handler,
// several. Do not keep a Call after the middleware has returned.
type Call struct {
	handler *engine.Handler
	tx      any
	in      []engine.Input

	handled bool
	begun   atomic.Bool // next was called
	twice   atomic.Bool // and called again
	ended   atomic.Bool // the handler has returned
	err     error       // as the handler returned it; valid if ended
}

// Handler returns the name of the handler, see [Name].
func (c *Call) Handler() string { return c.handler.Name }

// Type returns the event type that the handler was registered for.
func (c *Call) Type() string { return c.handler.Type }

// Batch reports a handler that takes many events: [OnBatch] or [OnBatchTx].
func (c *Call) Batch() bool { return c.handler.Batch }

// Tx returns the transaction of a handler of [OnTx] or [OnBatchTx], such as a pgx.Tx. For other
// handlers Tx returns nil. The rules of OnTx apply: the transaction must not be ended.
func (c *Call) Tx() any { return c.tx }

// Len returns the number of events, at least one.
func (c *Call) Len() int { return len(c.in) }

// Event returns event i, from 0 to Len()-1. Data is a pointer to the decoded value of the handler's
// T. A change behind that pointer is seen by the handler.
func (c *Call) Event(i int) Event[any] {
	in := &c.in[i]
	return eventOf(in, in.Payload)
}

// Handled declares that the call is handled without its handler. The middleware must then return
// nil, and the events are recorded as done.
func (c *Call) Handled() { c.handled = true }

// run calls the handler, once.
func (c *Call) run(ctx context.Context, call engine.Invocation) error {
	if !c.begun.CompareAndSwap(false, true) {
		c.twice.Store(true)
		return c.again()
	}
	err := call(ctx, c.tx, c.in)
	c.err = err
	c.ended.Store(true)
	return err
}

// again returns the error of a second call of next. After a success, each event of a batch is
// named, because an error without names would run the events of the batch again.
func (c *Call) again() error {
	if c.ended.Load() && c.err != nil {
		return &nextTwiceError{c.err}
	}
	err := mark.New(mark.Permanent, 0, ErrNextTwice)
	if !c.Batch() {
		return err
	}
	all := make(BatchError, len(c.in))
	for i := range c.in {
		all[i] = err
	}
	return all
}

// errNotReturned is the value of the panic that a middleware has kept from the processor.
var errNotReturned = errors.New(
	"middleware returned nil before the handler had returned, or recovered its panic")

// result returns the result of the call, from that of the outermost middleware. After two calls of
// next, an error is that of the second: joined with others it would not name the events of a batch.
func (c *Call) result(err error) error {
	switch {
	case err != nil && c.twice.Load():
		return c.again()
	case err != nil:
		return err
	case c.begun.Load() && !c.ended.Load():
		return &PanicError{Value: errNotReturned}
	case !c.begun.Load() && !c.handled:
		return ErrNextNotCalled
	}
	return nil
}

// nextTwiceError is the failure of the first run, returned once more. A BatchError in it is found.
type nextTwiceError struct{ first error }

func (e *nextTwiceError) Error() string { return ErrNextTwice.Error() + ": " + e.first.Error() }

func (e *nextTwiceError) Unwrap() error { return e.first }

func (e *nextTwiceError) Is(target error) bool { return target == ErrNextTwice }
