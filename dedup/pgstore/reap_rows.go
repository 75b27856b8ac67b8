package pgstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/reaping"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Lease takes or renews the lease.
func (h *horizons) Lease(ctx context.Context, mine dedup.Token, length time.Duration) error {
	err := h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var one int
		return tx.QueryRow(ctx, q.aging.lease, pgtype.UUID{Bytes: mine, Valid: true},
			microseconds(length), h.leaseName).Scan(&one)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return reaping.ErrElsewhere
	}
	return err
}

// Leave ends the lease.
func (h *horizons) Leave(ctx context.Context, mine dedup.Token) error {
	return h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		_, err := tx.Exec(ctx, q.aging.leave, pgtype.UUID{Bytes: mine, Valid: true}, h.leaseName)
		return err
	})
}

// TooSlow reports whether the server ended a statement because of its time limit.
func (h *horizons) TooSlow(err error) bool { return sqlState(err) == codeCanceled }

// Scope deletes the rows behind the horizon, and moves the horizon.
func (h *horizons) Scope(ctx context.Context, a *ScopeAge, events, claims func(int64)) error {
	age := reaping.Age{Scope: a.Scope, ConsumedUntil: a.ConsumedUntil, Horizon: a.Horizon,
		Cutoff: a.cutoff, Ripe: a.ripe}
	err := h.scopes.Work(ctx, &age, events, claims)
	a.Horizon = age.Horizon
	return err
}

// Delete implements [reaping.Rows].
func (h *horizons) Delete(ctx context.Context, table int, a *reaping.Age, from, to time.Time) (
	n int64, last time.Time, more bool, err error) {
	var expired pgtype.Timestamptz
	err = h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		return tx.QueryRow(ctx, q.aging.tables[table].remove, a.Scope, int64(h.batch), from, to,
			a.Horizon, microseconds(h.deadLetters)).Scan(&n, &expired)
	})
	return n, expired.Time, n == int64(h.batch), cmp.Or(err, ctx.Err())
}

// Starts deletes a batch of starts that have not changed for a day.
func (h *horizons) Starts(ctx context.Context) (n int64, more bool, err error) {
	err = h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		return tx.QueryRow(ctx, q.aging.starts, int64(h.batch)).Scan(&n)
	})
	return n, n == int64(h.batch), err
}

// Silent returns scopes with rows that are never deleted. Silent reads some rows only, so scopes
// may be missing. The statement knows the other scopes by itself.
func (h *horizons) Silent(ctx context.Context, _ []ScopeAge) (scopes []string, err error) {
	err = h.chore(ctx, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		rows, err := tx.Query(ctx, q.aging.silent, h.wallClock, int64(reaping.SilentRows),
			microseconds(reaping.SilentAfter))
		if err != nil {
			return err
		}
		scopes, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return scopes, err
}

// Stuck counts claims with a lease that ended a while ago. The result is -1 if the server ended the
// search because of its time limit.
func (h *horizons) Stuck(ctx context.Context) (n int64, err error) {
	err = h.db.chore(ctx, verbReap, reaping.StuckLimit,
		func(ctx context.Context, tx pgx.Tx, q *statements) error {
			return tx.QueryRow(ctx, q.aging.stuck, microseconds(reaping.StuckAfter)).Scan(&n)
		})
	if h.TooSlow(err) && ctx.Err() == nil {
		return -1, nil
	}
	return n, err
}
