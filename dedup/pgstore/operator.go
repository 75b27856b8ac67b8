package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// Inspect implements [dedup.Operator]. If a key has two records, the transactional one comes first.
// Inspect locks no row.
func (s *Store) Inspect(ctx context.Context, keys ...dedup.Key) (records []dedup.Record,
	err error) {
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
			r.Key = keys[n-1] // the row may hold a hash only
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

// Forget implements [dedup.Operator], for both tables and table event_starts. If a running
// transaction has inserted the key, the key is not found yet. If the transaction holds an older
// row of the key, Forget waits for some seconds. Then the error matches [dedup.ErrUnavailable].
// A deferred event stays deferred.
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
		b.Queue(q.operator.forget, append([]any{key.Tenant, key.Scope, key.Type, key.ID},
			args...)...)
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

// Discard implements [dedup.Operator]. Discard waits some seconds for a transaction that holds
// the key. Then the error matches [dedup.ErrUnavailable], and the records are unchanged. If the
// key has a record in one table only, Discard changes that table. The fingerprint stays, so a
// copy with another one is still a conflict.
func (s *Store) Discard(ctx context.Context, key dedup.Key, retention time.Duration,
	reason string) error {
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
	args := slices.Concat([]any{cut(storable(dedup.ReasonDiscarded + reason)),
		microseconds(retention)}, keyArgs)
	settled := false
	err = s.db.operate(ctx, "discard", endTimeout, s.db.within(endTimeout,
		func(ctx context.Context, tx pgx.Tx, q *statements) error {
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
		}))
	if err == nil && settled {
		return fmt.Errorf("pgstore: discard %q: %w", key, dedup.ErrSettled)
	}
	return err
}

// lookBeforeDiscard locks the records of a key and returns their tables and whether one is done.
func lookBeforeDiscard(ctx context.Context, tx pgx.Tx, q *statements,
	key []any) (settled, inEvents, inKeys bool, err error) {
	for _, lock := range []string{q.operator.lockEvents, q.operator.lockKeys} {
		if _, err := tx.Exec(ctx, lock, key...); err != nil {
			return false, false, false, err
		}
	}
	// a new statement sees the changes that the locks waited for
	rows, err := tx.Query(ctx, q.operator.look, key...)
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

// discardNew gives up an unknown key, in both tables. If another transaction has stored the key in
// the meantime, the tables stay unchanged.
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
