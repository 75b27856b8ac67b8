package pgstore

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/reaping"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Rows are deleted in two steps. First the horizon of a scope moves: from then on, claims of events
// before the horizon are answered TooOld. The rows behind the horizon are deleted when no earlier
// claim can still be running. In the other order, a claim that has read the old horizon could find
// no row and call the event fresh. A crash between the steps leaves a moved horizon and all rows.

const (
	// verbReap names the work of a reaper in errors. Its role has other rights than a worker's.
	verbReap = "reap"
	// horizonRows bounds the expired rows of a scope and a table that one horizon step reads: some
	// seconds of work. The procedure for pg_cron has the same number.
	horizonRows = 5_000_000
)

// ScopeAge is the progress and the horizon of one scope.
type ScopeAge struct {
	Scope string
	// ConsumedUntil is the broker's time up to which all partitions were consumed. Rows that
	// expired before that time are deleted. Zero: not known, and no row is deleted.
	ConsumedUntil time.Time
	// Topic and Partition name the partition that is furthest behind, or has no known time. Both
	// are empty for a scope of the wall clock.
	Topic     string
	Partition int32
	// Horizon is the time before which the store may have forgotten events. Zero: the store has
	// forgotten no event.
	Horizon time.Time

	cutoff time.Time // rows that expired before may be deleted; zero: no row may
	ripe   bool
}

// horizons moves the horizons of scopes and deletes the rows behind a horizon. It is the work of a
// [reaping.Loop].
type horizons struct {
	db          *database
	wallClock   []string // scopes; never nil, which the server would read as null
	leaseName   string
	grace       time.Duration
	deadLetters time.Duration // their retention
	batch       int
	scopes      reaping.Scopes
}

func (h *horizons) chore(ctx context.Context,
	fn func(ctx context.Context, tx pgx.Tx, q *statements) error) error {
	return h.db.chore(ctx, verbReap, reaping.ChoreLimit, fn)
}

// Ages reads the scopes.
func (h *horizons) Ages(ctx context.Context) (all []ScopeAge, err error) {
	err = h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		rows, err := tx.Query(ctx, q.aging.scopes, h.wallClock, microseconds(h.grace))
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a ScopeAge, err error) {
			var topic *string
			var partition *int32
			var until, before, cutoff pgtype.Timestamptz
			err = row.Scan(&a.Scope, &topic, &partition, &until, &before, &cutoff, &a.ripe)
			a.Topic, a.Partition = value(topic), value(partition)
			a.ConsumedUntil, a.Horizon = until.Time.UTC(), before.Time.UTC()
			a.cutoff = cutoff.Time
			return a, err
		})
		return err
	})
	return all, err
}

// Window implements [reaping.Rows].
func (h *horizons) Window(ctx context.Context, table int, from, until time.Time, limit int) (n int,
	last time.Time, err error) {
	var expired pgtype.Timestamptz
	err = h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		return tx.QueryRow(ctx, q.aging.tables[table].window, from, until, int64(limit)).
			Scan(&n, &expired)
	})
	return n, expired.Time, err
}

// Expired implements [reaping.Rows].
func (h *horizons) Expired(ctx context.Context, table int, a *reaping.Age, from, to time.Time,
	limit int) (n int, made, last time.Time, err error) {
	var newest, expired pgtype.Timestamptz
	err = h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		return tx.QueryRow(ctx, q.aging.tables[table].expired, a.Scope, from, to, int64(limit),
			microseconds(h.deadLetters)).Scan(&n, &newest, &expired)
	})
	return n, newest.Time, expired.Time, err
}

// Move implements [reaping.Rows].
func (h *horizons) Move(ctx context.Context, a *reaping.Age, before, cutoff time.Time) error {
	return h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var stored time.Time
		err := tx.QueryRow(ctx, q.aging.store, a.Scope, before, cutoff).Scan(&stored)
		if err == nil {
			a.Horizon = stored.UTC()
		}
		return err
	})
}
