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

// agingSQL are the statements about time and identity.
type agingSQL struct {
	progress, progressForget, progressRead                                  string
	registerScope, registerRecipes, registerOthers, registerTopics          string
	registerWrite                                                           string
	begin, lease, leave, scopes, silent, store, stuck, starts, events, keys string
}

func newAgingSQL(file func(name string, more ...string) string) agingSQL {
	return agingSQL{
		progress: file("progress"), progressForget: file("progress_forget"),
		progressRead:  file("progress_read"),
		registerScope: file("register_scope"), registerRecipes: file("register_recipes"),
		registerOthers: file("register_others"), registerTopics: file("register_topics"),
		registerWrite: file("register_write"),
		begin:         file("reaper_begin"), lease: file("reaper_lease"), leave: file("reaper_leave"),
		scopes: file("horizon_scopes"), silent: file("reaper_silent"), store: file("horizon_store"),
		stuck: file("reaper_stuck"), starts: file("reaper_starts"),
		events: file("reaper_delete", "{table}", "{events}"),
		keys:   file("reaper_delete", "{table}", "{keys}"),
	}
}

// horizonRows bounds how many expired rows of a table one step of the horizon looks at: some seconds of work.
const horizonRows = 5_000_000

// chore runs fn in a transaction beside those of events. limit bounds each statement.
func (s *Store) chore(ctx context.Context, verb string, limit time.Duration,
	fn func(ctx context.Context, tx pgx.Tx, q *statements) error) error {
	q, err := s.statements(ctx)
	if err != nil {
		return s.failed(ctx, verb, err)
	}
	for try := 1; ; try++ {
		err = s.choreOnce(ctx, q, fn, q.aging.begin, milliseconds(limit))
		var answer *registerError
		if errors.As(err, &answer) {
			return err
		}
		if err == nil || try == attempts || !lostRace(err) || pause(ctx, try) != nil {
			return s.failed(ctx, verb, err)
		}
	}
}

// choreOnce runs fn once, with settings.
func (s *Store) choreOnce(ctx context.Context, q *statements, fn func(context.Context, pgx.Tx, *statements) error,
	settings string, args ...any) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer release(ctx, conn)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, settings, args...); err != nil {
		return err
	}
	if err := fn(ctx, tx, q); err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return tx.Commit(end)
}

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

// ages reads the scopes.
func (r *Reaper) ages(ctx context.Context) (all []ScopeAge, err error) {
	err = r.store.chore(ctx, "reap", choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		rows, err := tx.Query(ctx, q.aging.scopes, r.wallClock(), microseconds(r.cfg.Grace))
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
func (r *Reaper) silent(ctx context.Context) (scopes []string, err error) {
	err = r.store.chore(ctx, "reap", choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		rows, err := tx.Query(ctx, q.aging.silent, r.wallClock(), int64(silentRows), microseconds(silentAfter))
		if err != nil {
			return err
		}
		scopes, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return scopes, err
}

// wallClock is never nil, which the server would take for "unknown".
func (r *Reaper) wallClock() []string { return append([]string{}, r.cfg.WallClock...) }

// moveHorizon is the first step, for one scope.
func (r *Reaper) moveHorizon(ctx context.Context, a *ScopeAge) error {
	return r.store.chore(ctx, "reap", choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var before time.Time
		err := tx.QueryRow(ctx, q.aging.store, a.Scope, a.ConsumedUntil, microseconds(r.cfg.DeadLetterRetention),
			int64(horizonRows)).Scan(&before)
		if errors.Is(err, pgx.ErrNoRows) { // nothing has expired
			return nil
		}
		a.Horizon = before.UTC()
		return err
	})
}

// deleteBatch deletes once from a table, from a place on, and returns how many rows and the place to go on from.
func (r *Reaper) deleteBatch(ctx context.Context, text func(*statements) string, a *ScopeAge, from pgtype.Timestamptz,
) (n int64, next pgtype.Timestamptz, err error) {
	err = r.store.chore(ctx, "reap", choreLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		return tx.QueryRow(ctx, text(q), a.Scope, int64(r.cfg.Batch), from, a.cutoff, a.before,
			microseconds(r.cfg.DeadLetterRetention)).Scan(&n, &next)
	})
	return n, next, cmp.Or(err, ctx.Err())
}
