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
)

// Router holds the handlers by event type. Register with the functions [On], [OnTx], [OnBatch] and [OnBatchTx] (methods cannot be generic), then
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

// NotFound sets what happens to events of a type that no handler has. By default they are skipped, counted, and logged
// once per type. An error from fn is treated like a handler's; nothing is deduplicated, and fn sees a delivery again after a crash.
func (r *Router) NotFound(fn func(context.Context, *Message) error) {
	r.table.otherwise = fn
	r.table.otherwises++
}

// On registers fn for events of type typ whose effects are outside of the store's database: mail, SMS, an HTTP call. An
// event is claimed in the store under a lease, handled, completed. A crash between effect and completion leaves one
// doubt that cannot be removed from outside; [WhenUncertain] decides it. What fn's error means: any error is transient
// ([RetryPolicy]), unless it is marked [Permanent], [NotApplied], [RetryAfter] or [Unavailable]. A panic is a failure.
//
// Claims are taken for as many events at once as fn handles in about a second, each event is completed before the next
// one is run: a crash repeats at most the one that was running.
func On[T any](r *Router, typ string, fn func(context.Context, Event[T]) error, opts ...Option) {
	rt := newRoute[T](r, typ, opts, fn == nil)
	rt.tooOld = cmp.Or(rt.tooOld, DeadLetterTooOld)
	rt.call = one(func(ctx context.Context, _ any, e Event[T]) error { return fn(ctx, e) })
}

// OnTx registers fn, which must touch nothing but tx and may run again, for events of type typ: the mark in the store
// and all that fn does in tx are one database transaction, so its effects there happen exactly once. The store must be a
// [dedup.TxStore] of the same Tx, such as pgstore for pgx.Tx; this is checked by [NewProcessor]. fn must not commit or roll back. Errors
// mean the same as in [On]; whatever fn did is rolled back.
//
// Events that wait together share a transaction, in their order: one commit instead of hundreds. Such a transaction never
// waits for a lock for longer than 20 ms; if one is not to be had, or if a handler fails, it is rolled back, the events
// before the failing one are committed together, and the failing one is run in a transaction of its own, where its failure counts.
// That is why fn may run again although nothing is wrong with its event. What goes by the transaction instead of the
// event (temporary tables, now() as a key, deferred constraints) wants [TxPerEvent].
func OnTx[T, Tx any](r *Router, typ string, fn func(context.Context, Tx, Event[T]) error, opts ...Option) {
	rt := newRoute[T](r, typ, opts, fn == nil)
	rt.bind = bindTx[Tx]
	rt.tooOld = cmp.Or(rt.tooOld, StopTooOld)
	rt.call = one(func(ctx context.Context, tx any, e Event[T]) error { return fn(ctx, tx.(Tx), e) })
}

// OnBatch is [On] for a handler that takes many events at once: one call of an API for a hundred notifications. fn gets
// what is waiting, at most [MaxBatch] events in the order of the partition, and at most one of each Kafka key unless
// [SameKey] is given. All of them are claimed in one round trip and completed in one.
//
// fn tells which events failed with a [BatchError]; each of those meets its retry policy by itself, in a batch of one.
// Any other error says nothing about single events, so all of them are in doubt: each is run once more by itself, with
// [Event].Uncertain set, or dead-lettered, as [WhenUncertain] says (rule 2). A crash leaves a whole batch in that doubt, where
// On leaves one event.
func OnBatch[T any](r *Router, typ string, fn func(context.Context, []Event[T]) error, opts ...Option) {
	rt := newRoute[T](r, typ, opts, fn == nil)
	rt.batch = true
	rt.tooOld = cmp.Or(rt.tooOld, DeadLetterTooOld)
	rt.call = many(func(ctx context.Context, _ any, e []Event[T]) error { return fn(ctx, e) })
}

// OnBatchTx registers fn, which must touch nothing but tx and may run again, for many events of type typ at once: one
// statement for hundreds of events. All that was said of [OnTx] holds. fn gets at most one event of each Kafka key, so
// that an UPDATE ... FROM unnest(...) meets each row once if rows go by keys; with [SameKey] it gets several and must add
// them up itself, since Postgres applies one of them and says nothing of the others (rule 11).
//
// An error rolls back the whole transaction. A [BatchError] says which events are to blame: the others are committed together, and
// those are run by themselves. After any other error the batch is taken apart, smaller and smaller, until the event is found;
// nothing happens twice by that, as all was rolled back.
func OnBatchTx[T, Tx any](r *Router, typ string, fn func(context.Context, Tx, []Event[T]) error, opts ...Option) {
	rt := newRoute[T](r, typ, opts, fn == nil)
	rt.bind = bindTx[Tx]
	rt.tooOld = cmp.Or(rt.tooOld, StopTooOld)
	rt.batch = true
	rt.call = many(func(ctx context.Context, tx any, e []Event[T]) error { return fn(ctx, tx.(Tx), e) })
}

// route is one registered handler.
type route struct {
	settings
	typ    string
	data   string // name of T, for messages
	site   string // file:line of the registration
	batch  bool   // the handler takes many events
	bind   func(dedup.Store) (txStore, error)
	decode func(*Message) (payload any, err error)
	call   invocation
}

func newRoute[T any](r *Router, typ string, opts []Option, isNil bool) *route {
	rt := &route{settings: newSettings(r.defaults, opts), typ: typ, site: callSite(), data: reflect.TypeFor[T]().String()}
	if isNil {
		rt.problems = append(rt.problems, errors.New("handler is nil"))
	}
	if rt.name == "" {
		rt.name = typ
	}
	rt.decode = decoder[T](&rt.settings)
	r.table.routes = append(r.table.routes, rt)
	return rt
}

// callSite is the place that called On or one of its kin.
func callSite() string {
	_, file, line, ok := runtime.Caller(3)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

// invocation runs a handler on messages that were decoded before: on one of them, unless it takes batches.
type invocation func(ctx context.Context, tx any, in []input) error

// input is what a run is told of one event: a copy, so that a handler that is left behind shares nothing.
type input struct {
	meta
	id        string
	attempt   int
	uncertain bool
	message   *Message
	payload   any // *T
}

func decoder[T any](s *settings) func(*Message) (any, error) {
	decode, words := s.decode, s.ownDecode
	return func(m *Message) (any, error) {
		data := new(T)
		if m.Value != nil {
			if err := decode(m, data); err != nil {
				return nil, &DecodeError{Into: reflect.TypeFor[T]().String(), Err: err, words: words}
			}
		}
		return data, nil
	}
}

func one[T any](fn func(context.Context, any, Event[T]) error) invocation {
	return func(ctx context.Context, tx any, in []input) error {
		return fn(dedup.WithParent(ctx, in[0].key), tx, newEvent[T](&in[0]))
	}
}

func many[T any](fn func(context.Context, any, []Event[T]) error) invocation {
	return func(ctx context.Context, tx any, in []input) error {
		events := make([]Event[T], len(in))
		for i := range in {
			events[i] = newEvent[T](&in[i])
		}
		return fn(dedup.WithParent(ctx, dedup.Key{}), tx, events)
	}
}

func newEvent[T any](in *input) Event[T] {
	return Event[T]{
		ID: in.id, Type: in.key.Type, Tenant: in.key.Tenant, Data: *in.payload.(*T),
		Attempt: in.attempt, Uncertain: in.uncertain, Message: in.message, meta: in.meta,
	}
}

// txStore is a dedup.TxStore whose transaction type is erased.
type txStore interface {
	claimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
		fn func(tx any) ([]dedup.Completion, error)) error
	canRunTx() bool // without a claim
	runTx(ctx context.Context, limit time.Duration, fn func(tx any) error) error
}

type txAdapter[Tx any] struct{ store dedup.TxStore[Tx] }

func bindTx[Tx any](store dedup.Store) (txStore, error) {
	s, ok := store.(dedup.TxStore[Tx])
	if !ok {
		return nil, fmt.Errorf("handler wants a %s, which %T does not have", reflect.TypeFor[Tx](), store)
	}
	return txAdapter[Tx]{store: s}, nil
}

func (a txAdapter[Tx]) canRunTx() bool {
	_, ok := a.store.(dedup.TxRunner[Tx])
	return ok
}

func (a txAdapter[Tx]) runTx(ctx context.Context, limit time.Duration, fn func(any) error) error {
	return a.store.(dedup.TxRunner[Tx]).RunTx(ctx, limit, func(tx Tx) error { return fn(tx) })
}

func (a txAdapter[Tx]) claimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(any) ([]dedup.Completion, error),
) error {
	return a.store.ClaimTx(ctx, limit, reqs, answers, func(tx Tx) ([]dedup.Completion, error) { return fn(tx) })
}
