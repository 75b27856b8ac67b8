package idem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/engine"
)

// Router holds the handlers by event type. Register handlers with [On], [OnTx], [OnBatch] and
// [OnBatchTx], then pass the router to [NewProcessor] or to a consumer.
//
// Registration does not panic. NewProcessor and consumer.New return all mistakes joined, each with
// the file and line of the registration.
//
// A Router is not safe for concurrent use. Processors and consumers only read it.
type Router struct {
	table      *engine.Table
	defaults   []Option
	parent     *Router // nil for a router that is no group
	middleware []Middleware
	sealed     bool // a handler is registered on the router or on a group
}

// NewRouter returns an empty router. The handlers have the given options, unless a group or a
// handler overrides them.
func NewRouter(defaults ...Option) *Router {
	return &Router{table: &engine.Table{}, defaults: defaults}
}

// With returns a group with more defaults. A handler that is registered on the group is registered
// on r too. The group's options override those of r. The group has the middleware of r, see
// [Router.Use].
func (r *Router) With(opts ...Option) *Router {
	defaults := append(append([]Option(nil), r.defaults...), opts...)
	return &Router{table: r.table, defaults: defaults, parent: r}
}

// NotFound sets the function for events of a type without a handler. By default such events are
// skipped and counted, and each type is logged once.
//
// An error of fn means the same as an error of a handler. The store is not involved: fn runs for
// every delivery, also for duplicates and after a crash.
func (r *Router) NotFound(fn func(context.Context, *Message) error) {
	r.table.NotFound = fn
	r.table.NotFoundCalls++
}

// On registers fn for events of type typ. The effects of fn are outside the store's database, such
// as mail, SMS or an HTTP call. The store grants a claim under a lease, fn runs, and the store
// records the completion.
//
// A crash between the effect and the completion leaves the event uncertain. By default fn then runs
// again with the same [Event.IdempotencyKey]. [WhenUncertain] chooses the policy.
//
// An error of fn is transient ([RetryPolicy]) unless it is marked with [Permanent], [NotApplied],
// [RetryAfter] or [Unavailable]. A panic counts as a failure.
//
// One round trip claims as many events as fn handles in about a second. Each event is completed
// before the next one runs. So a crash makes at most one event of the lane uncertain.
func On[T any](r *Router, typ string, fn func(context.Context, Event[T]) error, opts ...Option) {
	rt := newRoute[T](r, typ, opts, fn == nil,
		one(func(ctx context.Context, _ any, e Event[T]) error { return fn(ctx, e) }))
	rt.TooOld = cmp.Or(rt.TooOld, DeadLetterTooOld)
}

// OnTx registers fn for events of type typ. The effects of fn are writes in tx. The mark in the
// store and the writes are one database transaction, so the effects happen exactly once.
//
// The store must be a [dedup.TxStore] of the same Tx, such as pgstore for pgx.Tx. [NewProcessor]
// checks that. fn must use only tx, must not commit or roll back, and may run again. Errors mean
// the same as in [On], and an error rolls back.
//
// Waiting events share a transaction, in their order. Such a transaction waits at most 20 ms for a
// lock. If the lock is not free by then, or if a handler fails, the transaction is rolled back. The
// events before the failing one are then committed together, and the failing one runs in a
// transaction of its own. Only a failure there counts as an attempt. So fn may run again although
// its own event did not fail.
//
// Use [TxPerEvent] if fn depends on one transaction per event: temporary tables, now() as a key,
// deferred constraints.
func OnTx[T, Tx any](
	r *Router, typ string, fn func(context.Context, Tx, Event[T]) error, opts ...Option,
) {
	rt := newRoute[T](r, typ, opts, fn == nil,
		one(func(ctx context.Context, tx any, e Event[T]) error { return fn(ctx, tx.(Tx), e) }))
	rt.Bind = bindTx[Tx]
	rt.TooOld = cmp.Or(rt.TooOld, StopTooOld)
}

// OnBatch is [On] for a handler that takes many events in one call, such as a bulk API.
//
// fn gets the waiting events, at most [MaxBatch], in the order of the partition. By default it gets
// at most one event of each Kafka key; see [SameKey]. One round trip claims all events of a call,
// and one completes all.
//
// fn returns a [BatchError] to name the events that failed. Each of those meets the retry policy in
// a batch of one. Any other error, except [NotApplied] and [Unavailable], leaves every event of the
// call uncertain. Each event runs once more by itself, with [Event].Uncertain set, or becomes a
// dead letter, as [WhenUncertain] chooses. A crash leaves the events of one call uncertain.
func OnBatch[T any](
	r *Router, typ string, fn func(context.Context, []Event[T]) error, opts ...Option,
) {
	rt := newRoute[T](r, typ, opts, fn == nil,
		many(func(ctx context.Context, _ any, e []Event[T]) error { return fn(ctx, e) }))
	rt.Batch = true
	rt.TooOld = cmp.Or(rt.TooOld, DeadLetterTooOld)
}

// OnBatchTx is [OnTx] for a handler that takes many events in one call, such as one statement for
// hundreds of events. The documentation of OnTx applies.
//
// fn gets at most one event of each Kafka key. So an UPDATE ... FROM unnest(...) meets each row
// once, if each row belongs to one key. With [SameKey] fn may get several events of a key and must
// combine them, because Postgres applies only one of several updates of a row, without an error.
//
// An error rolls back the whole transaction. If it is a [BatchError], the other events are
// committed together, and the named ones run by themselves. After any other error, the batch is
// split into smaller and smaller ones until the failing event is found. No effect happens twice,
// because each failing transaction was rolled back.
func OnBatchTx[T, Tx any](
	r *Router, typ string, fn func(context.Context, Tx, []Event[T]) error, opts ...Option,
) {
	rt := newRoute[T](r, typ, opts, fn == nil,
		many(func(ctx context.Context, tx any, e []Event[T]) error { return fn(ctx, tx.(Tx), e) }))
	rt.Bind = bindTx[Tx]
	rt.TooOld = cmp.Or(rt.TooOld, StopTooOld)
	rt.Batch = true
}

func newRoute[T any](
	r *Router, typ string, opts []Option, isNil bool, call engine.Invocation,
) *engine.Handler {
	s := newSettings(r.defaults, opts)
	rt := &engine.Handler{
		Settings: s.Settings,
		Type:     typ,
		Data:     reflect.TypeFor[T]().String(),
		Site:     callSite(3),
	}
	if isNil {
		rt.Problems = append(rt.Problems, errors.New("handler is nil"))
	}
	if rt.Name == "" {
		rt.Name = typ
	}
	rt.Decode, rt.ImpureDecode = decoder[T](s), s.decodedBy == "Decode"
	rt.Decoded = s.decodes()
	if err := checkData(reflect.TypeFor[T]()); err != nil {
		rt.Problems = append(rt.Problems, err)
	}
	rt.Call = classified(s.classify, around(r.chain(), rt, call))
	r.table.Handlers = append(r.table.Handlers, rt)
	r.seal()
	return rt
}

// callSite returns the file and line that called the exported function, depth calls above callSite.
func callSite(depth int) string {
	_, file, line, ok := runtime.Caller(depth)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

func decoder[T any](s *options) func(context.Context, *Message) (any, error) {
	if s.decoder != nil {
		return decodeWith[T](s.decoder)
	}
	decode, own := s.decode, s.decodedBy != ""
	return func(_ context.Context, m *Message) (any, error) {
		data := new(T)
		if m.Value != nil {
			if err := decode(m, data); err != nil {
				return nil, &DecodeError{Into: reflect.TypeFor[T]().String(), Err: err, own: own}
			}
		}
		return data, nil
	}
}

func one[T any](fn func(context.Context, any, Event[T]) error) engine.Invocation {
	return func(ctx context.Context, tx any, in []engine.Input) error {
		return fn(dedup.WithParent(ctx, in[0].Key), tx, newEvent[T](&in[0]))
	}
}

func many[T any](fn func(context.Context, any, []Event[T]) error) engine.Invocation {
	return func(ctx context.Context, tx any, in []engine.Input) error {
		events := make([]Event[T], len(in))
		for i := range in {
			events[i] = newEvent[T](&in[i])
		}
		return fn(dedup.WithParent(ctx, dedup.Key{}), tx, events)
	}
}

func newEvent[T any](in *engine.Input) Event[T] { return eventOf(in, *in.Payload.(*T)) }

func eventOf[T any](in *engine.Input, data T) Event[T] {
	return Event[T]{
		ID: in.ID, Type: in.Key.Type, Tenant: in.Key.Tenant, Data: data,
		Attempt: in.Attempt, Uncertain: in.Uncertain, Message: in.Message, meta: meta{in.Key, in.Name, in.Fence},
	}
}

type txAdapter[Tx any] struct{ store dedup.TxStore[Tx] }

func bindTx[Tx any](store dedup.Store) (engine.TxStore, error) {
	s, ok := store.(dedup.TxStore[Tx])
	if !ok {
		return nil, fmt.Errorf("handler takes a %s, but %T has no such transactions",
			reflect.TypeFor[Tx](), store)
	}
	return txAdapter[Tx]{store: s}, nil
}

func (a txAdapter[Tx]) CanRunTx() bool {
	_, ok := a.store.(dedup.TxRunner[Tx])
	return ok
}

func (a txAdapter[Tx]) RunTx(ctx context.Context, limit time.Duration, fn func(any) error) error {
	return a.store.(dedup.TxRunner[Tx]).RunTx(ctx, limit, func(tx Tx) error { return fn(tx) })
}

func (a txAdapter[Tx]) ClaimTx(
	ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(any) ([]dedup.Completion, error),
) error {
	return a.store.ClaimTx(ctx, limit, reqs, answers,
		func(tx Tx) ([]dedup.Completion, error) { return fn(tx) })
}
