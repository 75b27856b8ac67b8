package pgoutbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// addWatch gives each entry a span ID of its own in the trace of its context, and notes its calls.
type addWatch struct {
	n     byte
	begun []string
	ended []string
	wrote []string
}

type addedKey struct{}

func (w *addWatch) BeginAdd(ctx context.Context, e *outbox.Entry) context.Context {
	w.n++
	w.begun = append(w.begun, fmt.Sprintf("%s %s %d", e.ID, e.Topic, len(e.Headers)))
	sc := trace.SpanContextFromContext(ctx)
	ctx = trace.ContextWithSpanContext(ctx, sc.WithSpanID(trace.SpanID{w.n}))
	return context.WithValue(ctx, addedKey{}, e.ID)
}

func (w *addWatch) EndAdd(ctx context.Context, e *outbox.Entry, err error) {
	w.ended = append(w.ended, fmt.Sprintf("%s %v %t", e.ID, ctx.Value(addedKey{}), err == nil))
}

func (w *addWatch) ObserveWrite(_ context.Context, told outbox.Write) {
	for i := range told.Entries {
		w.wrote = append(w.wrote, fmt.Sprintf("%s %t", told.Entries[i].ID, told.Err == nil))
	}
}

// Each entry carries the trace that an observer gave it, and not that of the call.
func TestObservers_TraceOfEachEntry(t *testing.T) {
	_, pool := newBox(t)
	w := &addWatch{}
	box := pgoutbox.New(pool, pgoutbox.Observers(w))
	own := entry("A", "own")
	own.Headers = []idem.Header{{Key: "traceparent", Value: []byte("mine")}}
	tx := begin(t, pool)
	require.NoError(t, box.Add(traced(t.Context()), tx, entry("A", "1"), entry("A", "2"), own))
	require.NoError(t, tx.Commit(t.Context()))
	rows := fetch(t, box)
	require.Equal(t, []string{"1", "2", "own"}, ids(rows))
	of := func(i int) trace.SpanContext {
		in := propagation.MapCarrier{}
		for _, h := range rows[i].Entry.Headers {
			in[h.Key] = string(h.Value)
		}
		return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), in))
	}
	caller := trace.SpanContextFromContext(traced(t.Context()))
	for i := range 2 {
		require.Equal(t, caller.TraceID(), of(i).TraceID())
		require.Equal(t, trace.SpanID{byte(i + 1)}, of(i).SpanID())
		require.Equal(t, "a=b", of(i).TraceState().String())
	}
	require.Equal(t, own.Headers, rows[2].Entry.Headers)
	require.Equal(t, []string{"1 orders 0", "2 orders 0", "own orders 1"}, w.begun)
	require.Equal(t, []string{"own own true", "2 2 true", "1 1 true"}, w.ended)
	require.Equal(t, []string{"1 true", "2 true", "own true"}, w.wrote)
}

// Observers see a queued entry when it is added and when it is written. Entries of a savepoint that
// is rolled back are not written.
func TestObservers_Queue(t *testing.T) {
	_, pool := newBox(t)
	w := &addWatch{}
	box := pgoutbox.New(pool, pgoutbox.Observers(w))
	tx := box.Queue(begin(t, pool))
	require.NoError(t, box.Add(t.Context(), tx, entry("B", "2")))
	nested, err := tx.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, box.Add(t.Context(), nested, entry("C", "back")))
	require.NoError(t, nested.Rollback(t.Context()))
	require.NoError(t, box.Add(t.Context(), tx, entry("A", "1")))
	require.Empty(t, w.wrote)
	require.Equal(t, []string{"2 2 true", "back back true", "1 1 true"}, w.ended)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{"1 true", "2 true"}, w.wrote)
}

// After an error EndAdd is called for every entry that was begun. Entries behind the wrong one were
// not begun.
func TestObservers_Errors(t *testing.T) {
	_, pool := newBox(t)
	w := &addWatch{}
	box := pgoutbox.New(pool, pgoutbox.Observers(w))
	tx := begin(t, pool)
	bad := entry("A", "bad")
	bad.Type = ""
	require.ErrorIs(t, box.Add(t.Context(), tx, entry("A", "1"), bad, entry("A", "3")), outbox.ErrEntry)
	require.Equal(t, []string{"bad bad false", "1 1 false"}, w.ended)
	require.Empty(t, w.wrote)

	*w = addWatch{}
	require.NoError(t, tx.Rollback(t.Context()))
	require.ErrorIs(t, box.Add(t.Context(), tx, entry("A", "1")), pgx.ErrTxClosed)
	require.Equal(t, []string{"1 1 false"}, w.ended)
	require.Equal(t, []string{"1 false"}, w.wrote)
}

// stops panics in the middle of an Add.
type stops struct{ addWatch }

func (*stops) BeginAdd(context.Context, *outbox.Entry) context.Context { panic("observer") }

// Every BeginAdd has an EndAdd, also if another observer panics.
func TestObservers_Panic(t *testing.T) {
	w := &addWatch{}
	box := pgoutbox.New(nil, pgoutbox.Observers(w), pgoutbox.Observers(&stops{}))
	require.Panics(t, func() { _ = box.Add(t.Context(), fakeTx{}, entry("A", "1")) })
	require.Equal(t, []string{"1 1 false"}, w.ended)
}

// fakeTx is a transaction that is not used.
type fakeTx struct{ pgx.Tx }

// An observer of another place is refused, because it would have no calls.
func TestObservers_Refused(t *testing.T) {
	box := pgoutbox.New(nil, pgoutbox.Observers(&addWatch{}, "watch"))
	require.ErrorContains(t, box.Add(t.Context(), fakeTx{}, entry("A", "1")), "string is neither")
}
