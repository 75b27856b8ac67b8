package pgstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// What is forgotten is forgotten in two steps. First the horizon of a scope is moved: a claim of an event from before it
// is answered too old from then on. Only when no claim that began earlier can still be under way are the rows behind it
// deleted. The other way round, a claim that had looked before the horizon moved would find no row and call the event
// fresh. Whoever dies between the steps has done nothing but move the horizon.

const (
	// choreLimit bounds each statement of a reaper. It keeps the whole horizon step of horizonRows.
	choreLimit = time.Minute
	// horizonRows bounds how many expired rows of a table one step of the horizon looks at: some seconds of work.
	horizonRows = 5_000_000
	// silentRows is how many rows of a table are looked at for scopes of which nothing is ever deleted.
	silentRows = 1000
	// silentAfter is how long a scope may have rows before it records progress.
	silentAfter = 5 * time.Minute
)

// ScopeAge is what a [Reaper] knows about one scope.
type ScopeAge struct {
	Scope string
	// ConsumedUntil is the broker's time up to which all partitions were consumed: what expired before it may go. Zero:
	// not known, and nothing goes.
	ConsumedUntil time.Time
	// Topic and Partition are the ones furthest behind, or of unknown time. Empty for a scope of the wall clock.
	Topic     string
	Partition int32
	// Horizon is before which the store remembers nothing for certain. Zero: it has forgotten nothing.
	Horizon time.Time

	before, cutoff pgtype.Timestamptz
	ripe           bool
}

// horizons moves the horizons of scopes and deletes the rows behind them.
type horizons struct {
	db          *database
	wallClock   []string // scopes; never nil, which the server would take for "unknown"
	grace       time.Duration
	deadLetters time.Duration // how long they are kept
	batch       int
}

func (h *horizons) inTx(ctx context.Context, limit time.Duration,
	fn func(ctx context.Context, tx pgx.Tx, q *statements) error) error {
	return h.db.chore(ctx, "reap", limit, fn)
}

// ages reads the scopes.
func (h *horizons) ages(ctx context.Context) (all []ScopeAge, err error) {
	err = h.inTx(ctx, choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		rows, err := tx.Query(ctx, q.aging.scopes, h.wallClock, microseconds(h.grace))
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a ScopeAge, err error) {
			var topic *string
			var partition *int32
			var until pgtype.Timestamptz
			err = row.Scan(&a.Scope, &topic, &partition, &until, &a.before, &a.cutoff, &a.ripe)
			a.Topic, a.Partition = value(topic), value(partition)
			a.ConsumedUntil, a.Horizon = until.Time.UTC(), a.before.Time.UTC()
			return a, err
		})
		return err
	})
	return all, err
}

// silent returns scopes of which nothing is ever deleted, as far as a look at some rows shows them.
func (h *horizons) silent(ctx context.Context) (scopes []string, err error) {
	err = h.inTx(ctx, choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		rows, err := tx.Query(ctx, q.aging.silent, h.wallClock, int64(silentRows), microseconds(silentAfter))
		if err != nil {
			return err
		}
		scopes, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return scopes, err
}

// moveHorizon is the first step, for one scope.
func (h *horizons) moveHorizon(ctx context.Context, a *ScopeAge) error {
	return h.inTx(ctx, choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var before time.Time
		err := tx.QueryRow(ctx, q.aging.store, a.Scope, a.ConsumedUntil, microseconds(h.deadLetters),
			int64(horizonRows)).Scan(&before)
		if errors.Is(err, pgx.ErrNoRows) { // nothing has expired
			return nil
		}
		a.Horizon = before.UTC()
		return err
	})
}

// deleteBatch deletes once from a table, from a place on, and returns how many rows and the place to go on from.
func (h *horizons) deleteBatch(ctx context.Context, text func(*statements) string, a *ScopeAge, from pgtype.Timestamptz,
) (n int64, next pgtype.Timestamptz, err error) {
	err = h.inTx(ctx, choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		return tx.QueryRow(ctx, text(q), a.Scope, int64(h.batch), from, a.cutoff, a.before,
			microseconds(h.deadLetters)).Scan(&n, &next)
	})
	return n, next, cmp.Or(err, ctx.Err())
}
