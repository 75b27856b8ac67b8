package pgoutbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// Rule 23: two events of one parent with the same type and aggregate need names. No entry of the
// failed call is added, and the transaction goes on.
func TestSameID(t *testing.T) {
	box, pool := newBox(t)
	ctx := dedup.WithParent(t.Context(), dedup.Key{Scope: "g", Type: "order.placed", ID: "7"})
	line := func(name string) outbox.Entry {
		return outbox.Entry{Topic: "orders", Key: "7", Type: "line.added", Name: name}
	}
	for name, tx := range map[string]pgx.Tx{"queue": box.Queue(begin(t, pool)), "at once": begin(t, pool)} {
		err := box.Add(ctx, tx, entry("9", name), line(""), line(""))
		require.ErrorIs(t, err, outbox.ErrSameID)
		require.ErrorContains(t, err, "Entry.Name")
		require.ErrorContains(t, err, `key "7"`)
		require.NoError(t, box.Add(ctx, tx, line(name+"1"), line(name+"2")))
		require.NoError(t, tx.Commit(t.Context()))
	}
	require.Len(t, states(t, pool), 4)

	tx := box.Queue(begin(t, pool))
	require.NoError(t, box.Add(ctx, tx, line("x")))
	require.ErrorIs(t, box.Add(ctx, tx, entry("9", "other"), line("x")), outbox.ErrSameID, "a second call")
	require.NoError(t, box.Add(ctx, tx, entry("9", "other")), "nothing of the failed call is remembered")
	other := line("")
	other.ID, other.Type = "other", "another.type"
	require.NoError(t, box.Add(ctx, tx, other), "consumers know events by type and ID")
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, box.Add(dedup.WithParent(t.Context(), dedup.Key{}), begin(t, pool), line("")), outbox.ErrNoParent)
}

// A caller that ignores the ok of httpidem.TxFrom gets an error, not a panic.
func TestNoTransaction(t *testing.T) {
	require.ErrorContains(t, pgoutbox.New(nil).Add(t.Context(), nil, entry("A", "1")), "tx is nil")
}

// O-10: Add refuses an entry that no topic would take, and leaves the transaction usable.
func TestTooLargeAtInsert(t *testing.T) {
	_, pool := newBox(t)
	box := pgoutbox.New(pool, pgoutbox.MaxBytes(1000))
	large := entry("A", "large")
	large.Payload = make([]byte, 2000)
	tx := begin(t, pool)
	err := box.Add(t.Context(), tx, entry("A", "small"), large)
	require.ErrorIs(t, err, outbox.ErrEntry)
	require.ErrorContains(t, err, "limit is 1000")
	require.NoError(t, box.Add(t.Context(), tx, entry("A", "small")))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, map[string]int{"small": 0}, states(t, pool))
	require.ErrorContains(t, pgoutbox.New(pool, pgoutbox.MaxBytes(0)).Add(t.Context(), tx, large), "MaxBytes")
}

// O-14: the table refuses a row without an ID, and has no default for it.
func TestNoRowWithoutID(t *testing.T) {
	_, pool := newBox(t)
	var nullable, defaults string
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT is_nullable, coalesce(column_default, '') FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name = 'idem_outbox' AND column_name = 'event_id'`).Scan(&nullable, &defaults))
	require.Equal(t, "NO", nullable)
	require.Empty(t, defaults)
	_, err := pool.Exec(t.Context(), "INSERT INTO idem_outbox (shard, topic, event_type) VALUES (0, 'orders', 't')")
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "23502", refused.Code)
}

// Rolled back entries never appear, after a rollback of the transaction or of a savepoint.
func TestRolledBack(t *testing.T) {
	box, pool := newBox(t)
	for _, tx := range []pgx.Tx{box.Queue(begin(t, pool)), begin(t, pool)} {
		require.NoError(t, box.Add(t.Context(), tx, entry("A", "gone")))
		require.NoError(t, tx.Rollback(t.Context()))
		require.ErrorIs(t, box.Add(t.Context(), tx, entry("A", "late")), pgx.ErrTxClosed)
	}
	for name, tx := range map[string]pgx.Tx{"queue": box.Queue(begin(t, pool)), "once": begin(t, pool)} {
		undone, err := tx.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, box.Add(t.Context(), undone, entry("A", "undone")))
		require.NoError(t, undone.Rollback(t.Context()))
		kept, err := tx.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, box.Add(t.Context(), kept, entry("A", "kept "+name)))
		require.NoError(t, kept.Commit(t.Context()))
		require.NoError(t, tx.Commit(t.Context()))
	}
	require.Equal(t, map[string]int{"kept queue": 0, "kept once": 0}, states(t, pool))

	// Entries added to the outer transaction after the savepoint are rolled back too, and earlier
	// entries stay.
	tx := box.Queue(begin(t, pool))
	require.NoError(t, box.Add(t.Context(), tx, entry("B", "before")))
	outer, err := tx.Begin(t.Context())
	require.NoError(t, err)
	inner, err := outer.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, box.Add(t.Context(), inner, entry("B", "inner")))
	require.NoError(t, box.Flush(t.Context(), inner))
	require.NoError(t, inner.Commit(t.Context()))
	require.ErrorIs(t, box.Add(t.Context(), inner, entry("B", "late")), pgx.ErrTxClosed)
	require.NoError(t, box.Add(t.Context(), tx, entry("B", "around")))
	require.NoError(t, outer.Rollback(t.Context()))
	require.NoError(t, box.Add(t.Context(), tx, entry("B", "inner")))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, map[string]int{"kept queue": 0, "kept once": 0, "before": 0, "inner": 0}, states(t, pool))
}

// After Add has returned, the caller may reuse the memory, and the entry is unchanged.
func TestMemoryMayBeReused(t *testing.T) {
	box, pool := newBox(t)
	e := entry("A", "1")
	e.Headers = append(make([]idem.Header, 0, 9), idem.Header{Key: "h", Value: []byte("value")})
	ctx := traced(t.Context())
	tx := box.Queue(begin(t, pool))
	require.NoError(t, box.Add(ctx, tx, e))
	require.Len(t, e.Headers, 1)
	require.Empty(t, e.Headers[:2][1], "the trace was written into the caller's memory")
	copy(e.Payload, "XXXX")
	copy(e.Headers[0].Value, "XXXX")
	require.NoError(t, tx.Commit(t.Context()))
	rows := fetch(t, box)
	require.Equal(t, "payload of 1", string(rows[0].Entry.Payload))
	require.Equal(t, "value", string(rows[0].Entry.Headers[0].Value))
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func traced(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": "a=b"})
}

// The entry carries the trace of the context, unless it has one.
func TestTrace(t *testing.T) {
	box, pool := newBox(t)
	own := entry("A", "own")
	own.Headers = []idem.Header{{Key: "traceparent", Value: []byte("mine")}}
	add := func(box *pgoutbox.Outbox, entries ...outbox.Entry) {
		tx := begin(t, pool)
		require.NoError(t, box.Add(traced(t.Context()), tx, entries...))
		require.NoError(t, tx.Commit(t.Context()))
	}
	add(box, entry("A", "traced"), own)
	add(pgoutbox.New(pool, pgoutbox.Propagator(nil)), entry("A", "off"))
	rows := fetch(t, box)
	require.Equal(t, []string{"traced", "own", "off"}, ids(rows))
	require.ElementsMatch(t, []idem.Header{{Key: "traceparent", Value: []byte(parent)}, {Key: "tracestate", Value: []byte("a=b")}},
		rows[0].Entry.Headers)
	require.Equal(t, own.Headers, rows[1].Entry.Headers)
	require.Empty(t, rows[2].Entry.Headers)
}

// In a transaction that the store lends, entries are written before the commit. Entries of a
// savepoint that is rolled back are not, also after a flush.
func TestLentTransaction(t *testing.T) {
	box, pool := newBox(t)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	store := pgstore.New(pool)
	err := store.RunTx(t.Context(), time.Minute, func(tx pgx.Tx) error {
		require.NoError(t, box.Add(t.Context(), tx, entry("A", "first")))
		require.Empty(t, rowsIn(t, tx), "it was written at once")
		undo, err := tx.(dedup.Savepointer).Savepoint(t.Context())
		require.NoError(t, err)
		require.NoError(t, box.Add(t.Context(), tx, entry("B", "undone")))
		require.NoError(t, box.Flush(t.Context(), tx))
		require.NoError(t, box.Flush(t.Context(), tx))
		require.ElementsMatch(t, []string{"first", "undone"}, rowsIn(t, tx))
		require.NoError(t, undo(t.Context()))
		require.Empty(t, rowsIn(t, tx))
		return box.Add(t.Context(), tx, entry("B", "undone2"), entry("B", "last"))
	})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"first": 0, "undone2": 0, "last": 0}, states(t, pool))

	failed := errors.New("handler failed")
	require.ErrorIs(t, store.RunTx(t.Context(), time.Minute, func(tx pgx.Tx) error {
		require.NoError(t, box.Add(t.Context(), tx, entry("A", "never")))
		return failed
	}), failed)
	require.NotContains(t, states(t, pool), "never")
}

func rowsIn(t *testing.T, tx pgx.Tx) []string {
	rows, err := tx.Query(t.Context(), "SELECT event_id FROM idem_outbox")
	require.NoError(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return found
}

// Code that commits by itself calls Flush. A Commit that cannot flush rolls back.
func TestFlush(t *testing.T) {
	box, pool := newBox(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		require.NoError(t, box.Flush(t.Context(), tx), "a transaction without a queue")
		queued := box.Queue(tx)
		require.Same(t, queued, box.Queue(queued))
		require.NoError(t, box.Add(t.Context(), queued, entry("A", "flushed")))
		return box.Flush(t.Context(), queued)
	}))
	require.Equal(t, map[string]int{"flushed": 0}, states(t, pool))
	require.NoError(t, pgx.BeginFunc(t.Context(), box.Queued(pool), func(tx pgx.Tx) error {
		require.NoError(t, box.Add(t.Context(), tx, entry("A", "by pgx")))
		require.NotContains(t, rowsIn(t, tx), "by pgx", "it waits")
		return nil
	}))
	require.Equal(t, map[string]int{"flushed": 0, "by pgx": 0}, states(t, pool))

	tx := box.Queue(begin(t, pool))
	require.NoError(t, box.Add(t.Context(), tx, entry("A", "refused")))
	_, err := tx.Exec(t.Context(), "CREATE TABLE effect (); ALTER TABLE idem_outbox ADD CHECK (event_id <> 'refused')")
	require.NoError(t, err)
	require.ErrorContains(t, tx.Commit(t.Context()), "23514")
	var there bool
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT to_regclass('effect') IS NOT NULL").Scan(&there))
	require.False(t, there, "it was committed without its event")
}

// The memory of one transaction is bounded.
func TestQueueIsBounded(t *testing.T) {
	_, pool := newBox(t)
	box := pgoutbox.New(pool, pgoutbox.MaxBytes(1<<30))
	tx := box.Queue(begin(t, pool))
	payload := make([]byte, 64<<20)
	var err error
	for i := 0; i < 5 && err == nil; i++ {
		e := entry("A", strings.Repeat("i", i+1))
		e.Payload = payload
		err = box.Add(t.Context(), tx, e)
		require.Equal(t, i >= 3, err != nil)
	}
	require.ErrorIs(t, err, pgoutbox.ErrQueueFull)
}
