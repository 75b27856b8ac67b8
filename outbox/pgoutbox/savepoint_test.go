package pgoutbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

var errUndo = errors.New("undo the transaction")

// inQueues runs a test in each kind of transaction that has a queue.
func inQueues(t *testing.T, test func(t *testing.T, box *pgoutbox.Outbox, tx pgx.Tx)) {
	t.Helper()
	box, pool := newBox(t)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	t.Run("own", func(t *testing.T) { test(t, box, box.Queue(begin(t, pool))) })
	t.Run("lent", func(t *testing.T) {
		err := pgstore.New(pool).RunTx(t.Context(), time.Minute, func(tx pgx.Tx) error {
			test(t, box, tx)
			return errUndo
		})
		require.ErrorIs(t, err, errUndo)
	})
}

// The rollback of a savepoint forgets only the events added since: events that a flush has written
// before are still known.
func TestSavepoint_KnowsFlushedEvents(t *testing.T) {
	inQueues(t, func(t *testing.T, box *pgoutbox.Outbox, tx pgx.Tx) {
		ctx := t.Context()
		require.NoError(t, box.Add(ctx, tx, entry("A", "1")))
		require.NoError(t, box.Flush(ctx, tx))
		outer, err := tx.Begin(ctx)
		require.NoError(t, err)
		inner, err := outer.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, box.Add(ctx, inner, entry("A", "2")))
		require.NoError(t, inner.Rollback(ctx))
		require.NoError(t, box.Add(ctx, outer, entry("A", "2")), "it was rolled back")
		require.NoError(t, box.Flush(ctx, outer))
		require.NoError(t, outer.Rollback(ctx))
		require.ErrorIs(t, box.Add(ctx, tx, entry("A", "1")), outbox.ErrSameID)
		require.NoError(t, box.Add(ctx, tx, entry("A", "2")), "it was rolled back")
		require.NoError(t, box.Flush(ctx, tx))
		require.ElementsMatch(t, []string{"1", "2"}, rowsIn(t, tx))
	})
}

// A flush frees the memory of the queue when no savepoint is set. With a savepoint it does not: the
// entries may have to be written again.
func TestSavepoint_FlushFreesMemory(t *testing.T) {
	inQueues(t, func(t *testing.T, box *pgoutbox.Outbox, tx pgx.Tx) {
		ctx, n := t.Context(), 0
		add := func(tx pgx.Tx) {
			n++
			require.NoError(t, box.Add(ctx, tx, entry("A", string(rune('a'+n)))))
		}
		flushed := func(tx pgx.Tx) int {
			require.NoError(t, box.Flush(ctx, tx))
			left, err := box.QueuedBytes(tx)
			require.NoError(t, err)
			return left
		}
		add(tx)
		for _, c := range []struct {
			end  func(pgx.Tx, context.Context) error
			rows int
		}{{pgx.Tx.Commit, 4}, {pgx.Tx.Rollback, 6}} {
			outer, err := tx.Begin(ctx)
			require.NoError(t, err)
			inner, err := outer.Begin(ctx)
			require.NoError(t, err)
			add(inner)
			require.NoError(t, inner.Commit(ctx))
			require.Positive(t, flushed(outer), "the savepoint may be rolled back")
			_, err = outer.Begin(ctx) // ends with the one around it
			require.NoError(t, err)
			require.NoError(t, c.end(outer, ctx))
			add(tx)
			require.Zero(t, flushed(tx))
			add(tx)
			require.Zero(t, flushed(tx))
			require.Len(t, rowsIn(t, tx), c.rows)
		}
		if point, ok := tx.(dedup.Savepointer); ok {
			undo, err := point.Savepoint(ctx)
			require.NoError(t, err)
			add(tx)
			require.Positive(t, flushed(tx))
			require.NoError(t, undo(ctx))
			add(tx)
			require.Zero(t, flushed(tx))
		}
	})
}
