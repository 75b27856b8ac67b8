package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/idem-go/idem/internal/reaping"
)

// Rows are deleted in two steps. First the horizon of a scope moves: from then on, claims of events
// before the horizon are answered TooOld. A later run deletes the rows behind the horizon. A claim
// reads rows first and the horizon afterwards, so a claim that finds no row knows the horizon. A
// claim of pgstore on the same tables reads both at once: the grace is for that one. A crash
// between the steps leaves a moved horizon and all rows.

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

// horizon is a row of idem_horizons.
type horizon struct {
	before         time.Time
	cutoff, stored time.Time // zero: not known
}

// behind is a partition of a scope.
type behind struct {
	scope string
	place
	until time.Time // zero: not known
}

// ages returns the progress and horizon of each scope, in order. The partition furthest behind
// counts for the scope. If a partition went back since the horizon was made, the rows that it may
// need stay.
func ages(progress []behind, horizons map[string]horizon, wallClock []string, now time.Time,
	grace time.Duration) (all []ScopeAge) {
	scopes := make(map[string]behind)
	for _, p := range progress {
		if old, there := scopes[p.scope]; !there || further(p, old) {
			scopes[p.scope] = p
		}
	}
	for _, scope := range wallClock {
		scopes[scope] = behind{scope: scope, until: now}
	}
	for _, scope := range slices.Sorted(maps.Keys(scopes)) {
		p, h := scopes[scope], horizons[scope]
		a := ScopeAge{Scope: scope, ConsumedUntil: p.until, Topic: p.topic, Partition: p.partition,
			Horizon: h.before, ripe: h.stored.Before(now.Add(-grace))}
		if !h.cutoff.IsZero() && !p.until.IsZero() {
			a.cutoff = earlier(h.cutoff, p.until)
		}
		all = append(all, a)
	}
	return all
}

// further reports whether a is further behind than b. An unknown time is furthest.
func further(a, b behind) bool {
	return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.topic, b.topic),
		cmp.Compare(a.partition, b.partition)) < 0
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// horizons moves the horizons of scopes and deletes the rows behind a horizon, for one store. It is
// the work of a [reaping.Loop].
type horizons struct {
	s           *Store
	wallClock   []string // scopes
	leaseName   string
	grace       time.Duration
	deadLetters time.Duration // their retention
	batch       int
	scopes      reaping.Scopes
}

// write runs fn in a transaction that changes rows.
func (h *horizons) write(ctx context.Context, fn func(context.Context, *work) error) error {
	return h.s.inTx(ctx, "reap", h.kind(h.s.db), nil, fn)
}

// read runs fn in a transaction beside the writer. An error of the limit is not repeated.
func (h *horizons) read(ctx context.Context, limit time.Duration,
	fn func(context.Context, *work) error) error {
	kind := h.kind(h.s.reader)
	kind.limit, kind.settings = limit, append(kind.settings, h.s.d.InOrder)
	return h.s.inTx(ctx, "reap", kind, nil, fn)
}

func (h *horizons) kind(db *sql.DB) txKind {
	return txKind{db: db, limit: reaping.ChoreLimit, wait: lockWait, settings: []string{h.s.d.Reap}}
}

// Ages reads the scopes.
func (h *horizons) Ages(ctx context.Context) (all []ScopeAge, err error) {
	err = h.read(ctx, reaping.ChoreLimit, func(ctx context.Context, w *work) error {
		if err := w.readClock(ctx); err != nil {
			return err
		}
		stored, err := w.readHorizons(ctx)
		if err != nil {
			return err
		}
		var progress []behind
		err = each(ctx, w.q, "SELECT scope, topic, "+w.d.name("partition")+", "+
			w.d.Micros("consumed_until")+" FROM idem_progress", nil, func(rows *sql.Rows) error {
			var p behind
			var until sql.NullInt64
			err := rows.Scan(&p.scope, &p.topic, &p.partition, &until)
			p.until = instant(until)
			progress = append(progress, p)
			return err
		})
		all = ages(progress, stored, h.wallClock, w.now, h.grace)
		return err
	})
	return all, err
}

func instant(n sql.NullInt64) (t time.Time) {
	if n.Valid {
		t = micros(n.Int64)
	}
	return t
}

func (w *work) readHorizons(ctx context.Context) (map[string]horizon, error) {
	all := make(map[string]horizon)
	text := "SELECT scope, " + w.d.Micros(w.d.name("before")) + ", " + w.d.Micros("cutoff") + ", " +
		w.d.Micros("updated_at") + " FROM idem_horizons"
	err := each(ctx, w.q, text, nil, func(rows *sql.Rows) error {
		var scope string
		var before int64
		var cutoff, stored sql.NullInt64
		err := rows.Scan(&scope, &before, &cutoff, &stored)
		all[scope] = horizon{micros(before), instant(cutoff), instant(stored)}
		return err
	})
	return all, err
}

// Move implements [reaping.Rows].
func (h *horizons) Move(ctx context.Context, a *reaping.Age, before, cutoff time.Time) error {
	return h.write(ctx, func(ctx context.Context, w *work) error {
		var micro int64
		text := "SELECT " + w.d.Micros(w.d.name("before")) + " FROM idem_horizons WHERE scope = " +
			w.d.Param(1) + w.d.Lock
		there, err := w.maybe(ctx, text, []any{a.Scope}, &micro)
		if err == nil {
			err = w.readClock(ctx)
		}
		if err != nil {
			return err
		}
		a.Horizon = before
		write := horizonsTable(w.d).add
		if there {
			write = horizonsTable(w.d).replace
			a.Horizon = later(before, micros(micro))
		}
		return write(ctx, w.q, w.d, [][]any{{a.Scope, w.d.Time(a.Horizon), w.d.Time(cutoff),
			w.d.Time(w.now)}})
	})
}

func horizonsTable(d *Dialect) relation {
	return relation{"idem_horizons", []string{"scope", d.name("before"), "cutoff", "updated_at"}, 1}
}

// Expired implements [reaping.Rows].
func (h *horizons) Expired(ctx context.Context, table int, a *reaping.Age, from, to time.Time,
	limit int) (n int, made, last time.Time, err error) {
	err = h.read(ctx, reaping.ChoreLimit, func(ctx context.Context, w *work) error {
		if err := w.readClock(ctx); err != nil {
			return err
		}
		p := &arguments{d: w.d}
		text := "SELECT count(*), " + w.d.Micros("max(created_at)") + ", " +
			w.d.Micros("max(expires_at)") + " FROM (SELECT created_at, expires_at FROM " +
			w.d.byExpiry(tables[table]) + " WHERE expires_at >= " + p.add(w.d.Time(from)) +
			" AND expires_at < " + p.add(w.d.Time(to)) + " AND scope = " + p.add(a.Scope) +
			" AND " + h.notKept(w, p) + " ORDER BY expires_at" + limited(limit) + ") e"
		var newest, latest sql.NullInt64
		err := w.row(ctx, text, p.list, &n, &newest, &latest)
		made, last = instant(newest), instant(latest)
		return err
	})
	return n, made, last, err
}

// notKept is the condition for events that were never given up, or that have not changed for the
// retention of dead letters.
func (h *horizons) notKept(w *work, p *arguments) string {
	return "NOT ((status = 'dead' OR generation > 0) AND coalesce(updated_at, created_at) > " +
		p.add(w.d.Time(w.now.Add(-h.deadLetters))) + ")"
}
