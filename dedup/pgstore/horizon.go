package pgstore

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/decision"
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

	before, cutoff pgtype.Timestamptz
	ripe           bool
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
	rows        int64 // that one horizon step reads of a table
	window      int   // rows of a table that one statement reads
	between     func(context.Context) error
	floors      decision.Floors
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

// moveHorizon is the first step, for one scope. It reads from the first row that has expired on. A
// row stays while the time of its record is ahead of the horizon. If so many rows stay that reading
// ends with them, only the rows behind them move the horizon, so it is read from the last cut-off
// on, too. Otherwise no row would be deleted any more.
func (h *horizons) moveHorizon(ctx context.Context, a *ScopeAge) error {
	rows := make([]decision.Expired, recordTables)
	for i := range rows {
		var err error
		if rows[i], err = h.expired(ctx, i, a, h.begin(i, a)); err != nil {
			return err
		}
		if rows[i].Limit.IsZero() || !a.cutoff.Valid {
			continue
		}
		rest, err := h.expired(ctx, i, a, a.cutoff.Time)
		if err != nil {
			return err
		}
		rows[i] = rows[i].Onward(a.cutoff.Time, rest)
	}
	before, cutoff, some := decision.NextHorizon(a.Horizon, a.ConsumedUntil, rows...)
	if !some {
		return nil
	}
	return h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var stored time.Time
		err := tx.QueryRow(ctx, q.aging.store, a.Scope, before, cutoff).Scan(&stored)
		if err == nil {
			a.Horizon = stored.UTC()
		}
		return err
	})
}

// beginning is a time before all rows.
var beginning = time.UnixMicro(0).UTC()

// begin returns the time from which rows of a scope are read.
func (h *horizons) begin(table int, a *ScopeAge) time.Time {
	return h.floors.Begin(a.Scope, table, beginning, time.Now())
}

// windows calls fn for one window of a table after the other, from a time on and until another. A
// window has at most h.window rows of all scopes, and those that expired at the same time as its
// last row. A window without rows ends the work, and so does fn with false.
func (h *horizons) windows(ctx context.Context, table int, from, until time.Time,
	fn func(from, to time.Time) (goOn bool, err error)) error {
	for {
		var n int
		var last pgtype.Timestamptz
		err := h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
			return tx.QueryRow(ctx, q.aging.tables[table].window, from, until, int64(h.window)).
				Scan(&n, &last)
		})
		if err != nil || n == 0 {
			return err
		}
		to, more := decision.WindowEnd(n, h.window, last.Time, until)
		goOn, err := fn(from, to)
		if err != nil || !goOn || !more {
			return err
		}
		if err := h.between(ctx); err != nil {
			return err
		}
		from = to
	}
}

// expired summarizes the rows of a scope that have expired from a time on, at most h.rows.
func (h *horizons) expired(ctx context.Context, table int, a *ScopeAge, from time.Time) (
	sum decision.Expired, err error) {
	rest, passed := h.rows, from.Equal(h.begin(table, a))
	err = h.windows(ctx, table, from, a.ConsumedUntil, func(from, to time.Time) (bool, error) {
		var n int64
		var made, last pgtype.Timestamptz
		err := h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
			return tx.QueryRow(ctx, q.aging.tables[table].expired, a.Scope, from, to, rest,
				microseconds(h.deadLetters)).Scan(&n, &made, &last)
		})
		passed = passed && n == 0 && err == nil && to.Before(a.ConsumedUntil)
		if passed {
			h.floors.Pass(a.Scope, table, to, time.Now())
		}
		if made.Time.After(sum.Made) {
			sum.Made = made.Time
		}
		if rest -= n; rest <= 0 {
			sum.Limit = last.Time
		}
		return rest > 0, err
	})
	return sum, err
}
