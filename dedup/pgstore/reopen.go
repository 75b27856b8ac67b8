package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// Reopen implements [dedup.Operator] in both tables: a key that was discarded before the first
// claim is dead in both. Reopen resets the failures, take-overs and doubts of the old
// generation. Otherwise an event that was given up for these could never run again.
func (s *Store) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	if err := key.Validate(); err != nil {
		return dedup.Position{}, fmt.Errorf("pgstore: reopen: %w", err)
	}
	args, err := s.dict.keyArg(ctx, &key)
	if err != nil {
		return dedup.Position{}, err
	}
	var generation int64 // the higher one: the other row has not changed since it was discarded
	err = s.db.ownTx(ctx, "reopen", func(q *statements, b *pgx.Batch) {
		generation = 0
		b.Queue(q.reopenEvent, args...)
		b.Queue(q.reopenKey, args...)
		// Later statements see a concurrent Reopen that the first ones waited for.
		b.Queue(q.reopenedEvent, args...)
		b.Queue(q.reopenedKey, args...)
	}, func(results pgx.BatchResults) error {
		for range 4 {
			var g int64
			err := results.QueryRow().Scan(&g)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			generation = max(generation, g)
		}
		return nil
	})
	if err != nil {
		return dedup.Position{}, err
	}
	if generation == 0 {
		return dedup.Position{}, fmt.Errorf("pgstore: reopen %q: %w", key, dedup.ErrNotDead)
	}
	return dedup.Position{Generation: uint32(generation)}, nil
}

// CountStart implements [dedup.StartCounter], in table event_starts and a separate transaction.
func (s *Store) CountStart(ctx context.Context, key dedup.Key,
	o dedup.Origin) (starts uint32, err error) {
	if err := key.Validate(); err != nil {
		return 0, fmt.Errorf("pgstore: count start: %w", err)
	}
	numbers, err := s.dict.keyArg(ctx, &key)
	if err != nil {
		return 0, err
	}
	args := append([]any{key.Tenant, key.Scope, key.Type, key.ID, o.Topic, o.Partition, o.Offset},
		numbers...)
	var n int32
	err = s.db.ownTx(ctx, "count start", func(q *statements, b *pgx.Batch) {
		b.Queue(q.countStart, args...)
	}, func(results pgx.BatchResults) error {
		return results.QueryRow().Scan(&n)
	})
	if err != nil {
		return 0, err
	}
	return uint32(n), nil
}

// ClearStarts implements [dedup.StartCounter].
func (s *Store) ClearStarts(ctx context.Context, key dedup.Key, o dedup.Origin) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("pgstore: clear starts: %w", err)
	}
	return s.db.ownTx(ctx, "clear starts", func(q *statements, b *pgx.Batch) {
		b.Queue(q.clearStarts, key.Tenant, key.Scope, key.Type, key.ID, o.Topic, o.Partition,
			o.Offset)
	}, func(results pgx.BatchResults) error {
		_, err := results.Exec()
		return err
	})
}

// NoteConflict implements [dedup.ConflictNoter], in table event_starts and a separate
// transaction. NoteConflict neither writes nor locks the row of the event.
func (s *Store) NoteConflict(ctx context.Context, key dedup.Key, o dedup.Origin) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("pgstore: note conflict: %w", err)
	}
	return s.db.ownTx(ctx, "note conflict", func(q *statements, b *pgx.Batch) {
		b.Queue(q.noteConflict, key.Tenant, key.Scope, key.Type, key.ID, o.Topic, o.Partition,
			o.Offset)
	}, execs(1))
}

// Conflicts implements [dedup.ConflictNoter].
func (s *Store) Conflicts(ctx context.Context, key dedup.Key,
	limit int) (noted []dedup.Origin, err error) {
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("pgstore: conflicts: %w", err)
	}
	err = s.db.ownTx(ctx, "conflicts", func(q *statements, b *pgx.Batch) {
		b.Queue(q.conflicts, key.Tenant, key.Scope, key.Type, key.ID, int64(max(limit, 0)))
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		noted, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o dedup.Origin,
			err error) {
			return o, row.Scan(&o.Topic, &o.Partition, &o.Offset)
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return noted, nil
}
