package idem

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Router holds the handlers by event type. Register with the functions [On] and [OnTx] (methods cannot be generic), then
// give it to [NewProcessor] or to a consumer. Mistakes do not panic: all of them come back joined from there, each with
// the file and line of its registration. A Router is not safe for concurrent use and is not changed by its users.
type Router struct {
	table    *table
	defaults []Option
}

// table is shared by a router and its groups.
type table struct {
	routes     []*route
	otherwise  func(context.Context, *Message) error
	otherwises int
}

// NewRouter returns an empty router whose handlers have the given options unless they say otherwise.
func NewRouter(defaults ...Option) *Router {
	return &Router{table: &table{}, defaults: defaults}
}

// With returns a group: it registers into the same table, with more defaults.
func (r *Router) With(opts ...Option) *Router {
	defaults := append(append([]Option(nil), r.defaults...), opts...)
	return &Router{table: r.table, defaults: defaults}
}

// Otherwise sets what happens to events of a type that no handler has. By default they are skipped, counted, and logged
// once per type. An error from fn is treated like a handler's; nothing is deduplicated, and fn sees a delivery again after a crash.
func (r *Router) Otherwise(fn func(context.Context, *Message) error) {
	r.table.otherwise = fn
	r.table.otherwises++
}

// On registers fn for events of type typ whose effects are outside of the ledger's database: mail, SMS, an HTTP call. An
// event is claimed in the ledger under a lease, handled, completed. A crash between effect and completion leaves one
// doubt that cannot be removed from outside; [WhenUncertain] decides it. What fn's error means: any error is transient
// ([RetryPolicy]), unless it is marked [Permanent], [NotApplied], [RetryAfter] or [Unavailable]. A panic is a failure.
func On[T any](r *Router, typ string, fn func(context.Context, Event[T]) error, opts ...Option) {
	rt := newRoute[T](r, typ, opts, fn == nil)
	rt.prepare = prepare(&rt.settings, func(ctx context.Context, _ any, e Event[T]) error { return fn(ctx, e) })
}

// OnTx registers fn, which must touch nothing but tx and may run again, for events of type typ: the mark in the ledger
// and all that fn does in tx are one database transaction, so its effects there happen exactly once. The ledger must be a
// [dedup.TxStore] of the same Tx, such as pgstore for pgx.Tx; this is checked by [NewProcessor]. fn must not commit or roll back. Errors
// mean the same as in [On]; whatever fn did is rolled back.
func OnTx[T, Tx any](r *Router, typ string, fn func(context.Context, Tx, Event[T]) error, opts ...Option) {
	rt := newRoute[T](r, typ, opts, fn == nil)
	rt.bind = bindTx[Tx]
	rt.prepare = prepare(&rt.settings, func(ctx context.Context, tx any, e Event[T]) error { return fn(ctx, tx.(Tx), e) })
}

// route is one registered handler.
type route struct {
	settings
	typ     string
	data    string // name of T, for messages
	site    string // file:line of the registration
	bind    func(dedup.Store) (txLedger, error)
	prepare func(*Message) (invocation, error)
}

func newRoute[T any](r *Router, typ string, opts []Option, isNil bool) *route {
	rt := &route{settings: newSettings(r.defaults, opts), typ: typ, site: callSite(), data: reflect.TypeFor[T]().String()}
	if isNil {
		rt.problems = append(rt.problems, errors.New("handler is nil"))
	}
	if rt.name == "" {
		rt.name = typ
	}
	r.table.routes = append(r.table.routes, rt)
	return rt
}

// callSite is the place that called On or OnTx.
func callSite() string {
	_, file, line, ok := runtime.Caller(3)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

// invocation runs a handler on a message that was decoded before.
type invocation func(ctx context.Context, tx any, in input) error

// input is what a run is told beside its payload: a copy, so that a handler that is left behind shares nothing.
type input struct {
	meta
	id        string
	attempt   int
	uncertain bool
}

func prepare[T any](s *settings, fn func(context.Context, any, Event[T]) error) func(*Message) (invocation, error) {
	return func(m *Message) (invocation, error) {
		var data T
		if m.Value != nil {
			if err := s.decode(m, &data); err != nil {
				return nil, fmt.Errorf("decode into %T: %w", data, err)
			}
		}
		return func(ctx context.Context, tx any, in input) error {
			return fn(ctx, tx, Event[T]{
				ID: in.id, Type: in.key.Type, Tenant: in.key.Tenant, Data: data,
				Attempt: in.attempt, Uncertain: in.uncertain, Message: m, meta: in.meta,
			})
		}, nil
	}
}

// txLedger is a dedup.TxStore whose transaction type is erased.
type txLedger interface {
	claimTx(ctx context.Context, limit time.Duration, req dedup.Request, fn func(tx any) ([]dedup.Completion, error)) (dedup.Answer, error)
}

type txAdapter[Tx any] struct{ store dedup.TxStore[Tx] }

func bindTx[Tx any](store dedup.Store) (txLedger, error) {
	s, ok := store.(dedup.TxStore[Tx])
	if !ok {
		return nil, fmt.Errorf("handler wants a %s, which %T does not have", reflect.TypeFor[Tx](), store)
	}
	return txAdapter[Tx]{store: s}, nil
}

func (a txAdapter[Tx]) claimTx(ctx context.Context, limit time.Duration, req dedup.Request,
	fn func(any) ([]dedup.Completion, error),
) (dedup.Answer, error) {
	var answers [1]dedup.Answer
	err := a.store.ClaimTx(ctx, limit, []dedup.Request{req}, answers[:], func(tx Tx) ([]dedup.Completion, error) { return fn(tx) })
	return answers[0], err
}
