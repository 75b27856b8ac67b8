package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/reaping"
)

// byExpiry is a table in a FROM clause, read by its index on expires_at.
func (d *Dialect) byExpiry(t *table) string {
	if d.Index == nil {
		return t.name
	}
	return t.name + d.Index(t.name+"_expires_at")
}

func limited(n int) string { return " LIMIT " + strconv.Itoa(n) }

// oldest is a batch of rows to delete.
type oldest struct {
	keys []dedup.Key
	last time.Time // when the last of them expired
}

// deletable is the condition for rows of a scope that expired before a time and were made before
// the horizon, by both clocks.
func (h *horizons) deletable(w *work, p *arguments, a *reaping.Age, to time.Time) string {
	return "scope = " + p.add(a.Scope) + " AND expires_at < " + p.add(w.d.Time(to)) +
		" AND created_at <= " + p.add(w.d.Time(a.Horizon)) +
		" AND (origin_time IS NULL OR origin_time < " + p.add(w.d.Time(a.Horizon)) + ")" +
		" AND " + h.notKept(w, p)
}

// Scope deletes the rows behind the horizon, and moves the horizon.
func (h *horizons) Scope(ctx context.Context, a *ScopeAge, events, claims func(int64)) error {
	age := reaping.Age{Scope: a.Scope, ConsumedUntil: a.ConsumedUntil, Horizon: a.Horizon,
		Cutoff: a.cutoff, Ripe: a.ripe}
	err := h.scopes.Work(ctx, &age, events, claims)
	a.Horizon = age.Horizon
	return err
}

// TooSlow reports whether a transaction has reached its time limit.
func (h *horizons) TooSlow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || h.s.d.Classify(err) == Stopped
}

// Delete implements [reaping.Rows].
func (h *horizons) Delete(ctx context.Context, table int, a *reaping.Age, from, to time.Time) (
	n int64, last time.Time, more bool, err error) {
	rows, err := h.find(ctx, tables[table], a, from, to)
	if err == nil && len(rows.keys) > 0 {
		n, err = h.remove(ctx, tables[table], a, to, rows.keys)
	}
	return n, rows.last, len(rows.keys) == h.batch, err
}

// Window implements [reaping.Rows]. The index on expires_at has all that Window needs.
func (h *horizons) Window(ctx context.Context, table int, from, until time.Time, limit int) (n int,
	last time.Time, err error) {
	err = h.read(ctx, reaping.ChoreLimit, func(ctx context.Context, w *work) error {
		p := &arguments{d: w.d}
		text := "SELECT count(*), " + w.d.Micros("max(expires_at)") +
			" FROM (SELECT expires_at FROM " + w.d.byExpiry(tables[table]) +
			" WHERE expires_at >= " + p.add(w.d.Time(from)) +
			" AND expires_at < " + p.add(w.d.Time(until)) +
			" ORDER BY expires_at" + limited(limit) + ") e"
		var latest sql.NullInt64
		err := w.row(ctx, text, p.list, &n, &latest)
		last = instant(latest)
		return err
	})
	return n, last, err
}

// find reads the rows that expired first, from a time on, beside the writer and without a lock. The
// batch begins where the last one ended; otherwise Postgres would read the dead rows of all earlier
// batches.
func (h *horizons) find(ctx context.Context, t *table, a *reaping.Age, from, to time.Time) (
	rows oldest, err error) {
	err = h.read(ctx, reaping.ChoreLimit, func(ctx context.Context, w *work) error {
		rows = oldest{}
		if err := w.readClock(ctx); err != nil {
			return err
		}
		p := &arguments{d: w.d}
		text := "SELECT tenant, scope, event_type, event_id, " + w.d.Micros("expires_at") +
			" FROM " + w.d.byExpiry(t) + " WHERE expires_at >= " + p.add(w.d.Time(from)) + " AND " +
			h.deletable(w, p, a, to) + " ORDER BY expires_at" + limited(h.batch)
		return each(ctx, w.q, text, p.list, func(r *sql.Rows) error {
			var k dedup.Key
			var at int64
			err := r.Scan(&k.Tenant, &k.Scope, &k.Type, &k.ID, &at)
			rows.keys, rows.last = append(rows.keys, k), micros(at)
			return err
		})
	})
	slices.SortFunc(rows.keys, dedup.Key.Compare)
	return rows, err
}

// remove deletes those of the rows that may still be deleted, in one transaction. Locked rows stay
// for a later run.
func (h *horizons) remove(ctx context.Context, t *table, a *reaping.Age, to time.Time,
	keys []dedup.Key) (n int64, err error) {
	err = h.write(ctx, func(ctx context.Context, w *work) error {
		n = 0
		if err := w.readClock(ctx); err != nil {
			return err
		}
		for some := range slices.Chunk(keys, rowsPerStatement) {
			free, err := h.lock(ctx, w, t, a, to, some)
			if err != nil || len(free) == 0 {
				if err != nil {
					return err
				}
				continue
			}
			text, args := w.d.deletion(t.name, free)
			if _, err := w.q.ExecContext(ctx, text, args...); err != nil {
				return err
			}
			n += int64(len(free))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// lock locks those of the rows that may still be deleted. A claim may have changed some meanwhile.
// No index serves the condition inside CASE, so the rows are found by their keys.
func (h *horizons) lock(ctx context.Context, w *work, t *table, a *reaping.Age, to time.Time,
	keys []dedup.Key) (free []dedup.Key, err error) {
	where, args := w.d.chosen(keys)
	p := &arguments{d: w.d, list: args}
	text := "SELECT tenant, scope, event_type, event_id FROM " + t.name + " WHERE " + where +
		" AND CASE WHEN " + h.deletable(w, p, a, to) + " THEN 1 ELSE 0 END = 1" + w.d.LockFree
	err = each(ctx, w.q, text, p.list, func(r *sql.Rows) error {
		var k dedup.Key
		err := r.Scan(&k.Tenant, &k.Scope, &k.Type, &k.ID)
		free = append(free, k)
		return err
	})
	slices.SortFunc(free, dedup.Key.Compare)
	return free, err
}

// startsAfter is how long counted starts stay: their events are elsewhere by then.
const startsAfter = 24 * time.Hour

// Starts deletes a batch of starts that have not changed for a day. more is true if there may be
// others.
func (h *horizons) Starts(ctx context.Context) (n int64, more bool, err error) {
	var keys []dedup.Key
	err = h.read(ctx, reaping.ChoreLimit, func(ctx context.Context, w *work) error {
		keys = nil
		if err := w.readClock(ctx); err != nil {
			return err
		}
		text := "SELECT tenant, scope, event_type, event_id FROM " + startsTable +
			" WHERE updated_at < " + w.d.Param(1) + limited(h.batch)
		args := []any{w.d.Time(w.now.Add(-startsAfter))}
		return each(ctx, w.q, text, args, func(r *sql.Rows) error {
			var k dedup.Key
			err := r.Scan(&k.Tenant, &k.Scope, &k.Type, &k.ID)
			keys = append(keys, k)
			return err
		})
	})
	if err != nil || len(keys) == 0 {
		return 0, false, err
	}
	more = len(keys) == h.batch
	slices.SortFunc(keys, dedup.Key.Compare)
	err = h.write(ctx, func(ctx context.Context, w *work) (err error) {
		n, err = w.removeStarts(ctx, slices.Compact(keys))
		return err
	})
	return n, more, err
}

func (w *work) removeStarts(ctx context.Context, keys []dedup.Key) (n int64, err error) {
	if err := w.readClock(ctx); err != nil {
		return 0, err
	}
	for some := range slices.Chunk(keys, rowsPerStatement) {
		text, args := w.d.deletion(startsTable, some)
		p := &arguments{d: w.d, list: args}
		text += " AND updated_at < " + p.add(w.d.Time(w.now.Add(-startsAfter)))
		result, err := w.q.ExecContext(ctx, text, p.list...)
		if err != nil {
			return n, err
		}
		gone, err := result.RowsAffected()
		if err != nil {
			return n, err
		}
		n += gone
	}
	return n, nil
}

// Silent returns scopes with rows that are never deleted. Silent reads some rows only, those that
// expire first, so scopes may be missing. Younger rows do not count: progress is recorded after the
// first events.
func (h *horizons) Silent(ctx context.Context, known []ScopeAge) (scopes []string, err error) {
	heard := make(map[string]bool)
	for i := range known {
		heard[known[i].Scope] = true
	}
	err = h.read(ctx, reaping.ChoreLimit, func(ctx context.Context, w *work) error {
		scopes = nil
		if err := w.readClock(ctx); err != nil {
			return err
		}
		for _, t := range tables {
			text := "SELECT scope, " + w.d.Micros("created_at") + " FROM " + w.d.byExpiry(t) +
				" ORDER BY expires_at" + limited(reaping.SilentRows)
			err := each(ctx, w.q, text, nil, func(r *sql.Rows) error {
				var scope string
				var made int64
				err := r.Scan(&scope, &made)
				if !heard[scope] && micros(made).Before(w.now.Add(-reaping.SilentAfter)) {
					scopes = append(scopes, scope)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return distinct(scopes), err
}

// Stuck counts claims with a lease that ended a while ago. The result is -1 if the time limit ended
// the search.
func (h *horizons) Stuck(ctx context.Context) (n int64, err error) {
	began := time.Now()
	err = h.read(ctx, reaping.StuckLimit, func(ctx context.Context, w *work) error {
		if err := w.readClock(ctx); err != nil {
			return err
		}
		text := "SELECT count(*) FROM " + keysTable.name +
			" WHERE status = 'claimed' AND lease_until < " + w.d.Param(1)
		return w.row(ctx, text, []any{w.d.Time(w.now.Add(-reaping.StuckAfter))}, &n)
	})
	if err != nil && ctx.Err() == nil && time.Since(began) >= reaping.StuckLimit {
		return -1, nil
	}
	return n, err
}
