package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

var tables = []*table{eventsTable, keysTable}

// Inspect implements [dedup.Operator]. If a key has two records, the transactional one comes first.
// Inspect locks no row.
func (s *Store) Inspect(ctx context.Context, keys ...dedup.Key) (all []dedup.Record, err error) {
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, s.wrong("inspect", err)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	ascending := slices.Clone(keys)
	slices.SortFunc(ascending, dedup.Key.Compare)
	ascending = slices.Compact(ascending)
	err = s.reading(ctx, "inspect", nil, func(ctx context.Context, w *work) error {
		all = nil
		var found [2]map[dedup.Key]*decision.Record
		for i, t := range tables {
			var err error
			if found[i], err = w.read(ctx, t, ascending, ""); err != nil {
				return err
			}
		}
		for _, k := range keys {
			for i, t := range tables {
				if r := found[i][k]; r != nil {
					all = append(all, view(t, r, w.now))
				}
			}
		}
		return nil
	})
	return all, err
}

func view(t *table, r *decision.Record, now time.Time) dedup.Record {
	v := r.View(now)
	v.Tx = !t.claims
	return v
}

// Forget implements [dedup.Operator], for both tables and for counted starts. A deferred event
// stays deferred.
func (s *Store) Forget(ctx context.Context, key dedup.Key) error {
	return s.operate(ctx, "forget", key, func(
		ctx context.Context, w *work, in []*decision.Record,
	) error {
		if r := in[1]; r != nil && r.Live(w.now) {
			return refusal{dedup.ErrHeld}
		}
		where, args := w.d.chosen([]dedup.Key{key})
		var gone int64
		for _, name := range []string{eventsTable.name, keysTable.name, "event_starts"} {
			result, err := w.q.ExecContext(ctx, "DELETE FROM "+name+" WHERE "+where, args...)
			if err != nil {
				return err
			}
			n, err := result.RowsAffected()
			if err != nil {
				return err
			}
			gone += n
		}
		if gone == 0 {
			return refusal{dedup.ErrNotFound}
		}
		return nil
	})
}

// Discard implements [dedup.Operator]. If the key has a record in one table only, Discard changes
// that table.
func (s *Store) Discard(ctx context.Context, key dedup.Key, retention time.Duration,
	reason string) error {
	if retention <= 0 {
		return s.wrong("discard", fmt.Errorf("key %q: %w", key, errRetention))
	}
	return s.operate(ctx, "discard", key, func(
		ctx context.Context, w *work, in []*decision.Record,
	) error {
		unknown := in[0] == nil && in[1] == nil
		for i := range tables {
			if in[i] != nil && in[i].State == decision.Done {
				return refusal{dedup.ErrSettled}
			}
		}
		for i, t := range tables {
			r := in[i]
			if r == nil && !unknown {
				continue
			}
			write := t.replace
			if unknown {
				r, write = decision.New(&dedup.Request{Key: key}, w.now), t.add
			}
			r.Discard(reason, retention, w.now)
			if err := write(ctx, w.q, w.d, []*decision.Record{r}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Reopen implements [dedup.Operator] in both tables: a key that was discarded before the first
// claim is dead in both.
func (s *Store) Reopen(ctx context.Context, key dedup.Key) (p dedup.Position, err error) {
	err = s.operate(ctx, "reopen", key, func(
		ctx context.Context, w *work, in []*decision.Record,
	) error {
		p = dedup.Position{}
		waits := func(r *decision.Record) bool {
			return r == nil || r.Reopened || r.State == decision.Dead
		}
		for i, t := range tables {
			r := in[i]
			if r == nil || r.Reopened && !waits(in[1-i]) {
				continue
			}
			before, old := *r, r.Expires
			if !r.Reopen(w.now) {
				continue
			}
			if r.Position.Generation > p.Generation {
				p = r.Position
			}
			r.Expires = later(r.Expires, old)
			if before.Reopened {
				continue
			}
			if err := t.replace(ctx, w.q, w.d, []*decision.Record{r}); err != nil {
				return err
			}
		}
		if p.Generation == 0 {
			return refusal{dedup.ErrNotDead}
		}
		return nil
	})
	if err != nil {
		return dedup.Position{}, err
	}
	return p, nil
}

// operate runs fn with the locked records of key: the transactional one, and that of claims.
func (s *Store) operate(ctx context.Context, verb string, key dedup.Key,
	fn func(context.Context, *work, []*decision.Record) error) error {
	if err := key.Validate(); err != nil {
		return s.wrong(verb, err)
	}
	return s.ownTx(ctx, verb, nil, func(ctx context.Context, w *work) error {
		in := make([]*decision.Record, len(tables))
		for i, t := range tables {
			found, err := w.read(ctx, t, []dedup.Key{key}, w.d.Lock)
			if err != nil {
				return err
			}
			in[i] = found[key]
		}
		return fn(ctx, w, in)
	})
}

// importBatch is the number of events that one transaction of Import writes.
const importBatch = 500

// Import implements [dedup.Operator] in transactions of 500 events each. After an error some events
// may be stored. A repeat adds the rest.
func (s *Store) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	for i := range events {
		err := events[i].Key.Validate()
		if err == nil && events[i].Retention <= 0 {
			err = fmt.Errorf("key %q: %w", events[i].Key, errRetention)
		}
		if err != nil {
			return 0, s.wrong("import", err)
		}
	}
	for _, t := range tables {
		var some []dedup.Imported
		for _, e := range events {
			if e.Tx != t.claims {
				some = append(some, e)
			}
		}
		slices.SortStableFunc(some, func(a, b dedup.Imported) int { return a.Key.Compare(b.Key) })
		some = slices.CompactFunc(some, func(a, b dedup.Imported) bool { return a.Key == b.Key })
		for batch := range slices.Chunk(some, importBatch) {
			n, err := s.importSome(ctx, t, batch)
			added += n
			if err != nil {
				return added, err
			}
		}
	}
	return added, nil
}

func (s *Store) importSome(ctx context.Context, t *table, events []dedup.Imported) (n int,
	err error) {
	keys := make([]dedup.Key, len(events))
	for i := range events {
		keys[i] = events[i].Key
	}
	err = s.ownTx(ctx, "import", nil, func(ctx context.Context, w *work) error {
		found, err := w.read(ctx, t, keys, "")
		if err != nil {
			return err
		}
		var fresh []*decision.Record
		for i := range events {
			e := &events[i]
			if found[e.Key] != nil {
				continue
			}
			r := decision.New(&dedup.Request{Key: e.Key, Origin: e.Origin}, w.now)
			r.State, r.Fence = decision.Done, 1
			r.Keep(e.Retention, w.now)
			fresh = append(fresh, r)
		}
		n = len(fresh)
		return t.add(ctx, w.q, w.d, fresh)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
