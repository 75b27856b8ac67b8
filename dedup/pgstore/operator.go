package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// Inspect implements [dedup.Operator]. Of a key that has two records, that of a transaction comes first. It locks nothing.
func (s *Store) Inspect(ctx context.Context, keys ...dedup.Key) (records []dedup.Record, err error) {
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, fmt.Errorf("pgstore: inspect: %w", err)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	args, err := s.dict.lookUpArgs(ctx, keys)
	if err != nil {
		return nil, err
	}
	err = s.db.ownTx(ctx, "inspect", func(q *statements, b *pgx.Batch) {
		records = nil
		b.Queue(q.operator.inspect, args...)
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		_, err = readRecords(rows, func(r dedup.Record, n int64) bool {
			if n < 1 || n > int64(len(keys)) {
				return false
			}
			r.Key = keys[n-1] // a hash cannot be turned back
			records = append(records, r)
			return true
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Forget implements [dedup.Operator], for both tables and table event_starts. A key that a transaction under way has is not
// known yet if it had no row before; else Forget waits for it for some seconds, and then its error matches
// [dedup.ErrUnavailable]. What is deferred stays deferred.
func (s *Store) Forget(ctx context.Context, key dedup.Key) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("pgstore: forget: %w", err)
	}
	args, err := s.dict.lookUpArg(ctx, &key)
	if err != nil {
		return err
	}
	var live, other bool
	var n int64
	err = s.db.ownTx(ctx, "forget", func(q *statements, b *pgx.Batch) {
		b.Queue(q.operator.forget, append([]any{key.Tenant, key.Scope, key.Type, key.ID}, args...)...)
	}, func(results pgx.BatchResults) error {
		err := results.QueryRow().Scan(&live, &other, &n)
		if err == nil && other {
			err = errUnknown
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case live:
		return fmt.Errorf("pgstore: forget %q: %w", key, dedup.ErrHeld)
	case n == 0:
		return fmt.Errorf("pgstore: forget %q: %w", key, dedup.ErrNotFound)
	}
	return nil
}

// Discard implements [dedup.Operator]. It waits some seconds for a transaction that has the key; then its error matches
// [dedup.ErrUnavailable], and nothing has changed. A key that is known in one way is given up in that one. Its fingerprint
// stays: a copy with another one is a Conflict, as before.
func (s *Store) Discard(ctx context.Context, key dedup.Key, retention time.Duration, reason string) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("pgstore: discard: %w", err)
	}
	if retention <= 0 {
		return fmt.Errorf("pgstore: discard %q: retention must be positive", key)
	}
	keyArgs, err := s.dict.keyArg(ctx, &key)
	if err != nil {
		return err
	}
	args := slices.Concat([]any{cut(storable(dedup.ReasonDiscarded + reason)), microseconds(retention)}, keyArgs)
	settled := false
	err = s.db.operate(ctx, "discard", endTimeout, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		var inEvents, inKeys bool
		var err error
		settled, inEvents, inKeys, err = lookBeforeDiscard(ctx, tx, q, keyArgs)
		switch {
		case err != nil || settled:
			return err
		case !inEvents && !inKeys:
			return discardNew(ctx, tx, q, args)
		}
		if inEvents {
			_, err = tx.Exec(ctx, q.operator.discardEvents, args...)
		}
		if err == nil && inKeys {
			_, err = tx.Exec(ctx, q.operator.discardKeys, args...)
		}
		return err
	})
	if err == nil && settled {
		return fmt.Errorf("pgstore: discard %q: %w", key, dedup.ErrSettled)
	}
	return err
}

// lookBeforeDiscard locks what is known of a key and says in which way it is known and whether it is done.
func lookBeforeDiscard(ctx context.Context, tx pgx.Tx, q *statements, key []any) (settled, inEvents, inKeys bool, err error) {
	for _, lock := range []string{q.operator.lockEvents, q.operator.lockKeys} {
		if _, err := tx.Exec(ctx, lock, key...); err != nil {
			return false, false, false, err
		}
	}
	rows, err := tx.Query(ctx, q.operator.look, key...) // what the locks were waited for shows only now
	if err != nil {
		return false, false, false, err
	}
	var isTx bool
	var status string
	var version int16
	_, err = pgx.ForEachRow(rows, []any{&isTx, &status, &version}, func() error {
		if _, known := states[status]; !known || version != 1 {
			return errUnknown
		}
		settled = settled || status == "done"
		inEvents, inKeys = inEvents || isTx, inKeys || !isTx
		return nil
	})
	return settled, inEvents, inKeys, err
}

// discardNew gives up a key that nobody knows, in both ways. If somebody came in between, nothing has changed.
func discardNew(ctx context.Context, tx pgx.Tx, q *statements, args []any) error {
	for _, text := range []string{q.operator.newEvents, q.operator.newKeys} {
		tag, err := tx.Exec(ctx, text, args...)
		if err == nil && tag.RowsAffected() == 0 {
			err = errNoAnswer
		}
		if err != nil {
			return err
		}
	}
	return nil
}
