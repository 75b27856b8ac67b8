package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// importBatch is the number of events that one transaction of Import writes.
const importBatch = 1000

// Import implements [dedup.Operator] in transactions of a thousand events each. After an error
// some events may be stored. A repeat adds the rest. A row counts as created now, with the given
// origin. The row expires like any other, after the retention in consumed time.
func (s *Store) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	for i := range events {
		err := events[i].Key.Validate()
		if err == nil && events[i].Retention <= 0 {
			err = fmt.Errorf("key %q: retention must be positive", events[i].Key)
		}
		if err != nil {
			return 0, fmt.Errorf("pgstore: import: %w", err)
		}
	}
	for _, inTx := range []bool{true, false} {
		var reqs []dedup.Request
		for i := range events {
			if e := &events[i]; e.Tx == inTx {
				reqs = append(reqs, dedup.Request{Key: e.Key, Origin: e.Origin,
					Retention: e.Retention, AnyAge: true})
			}
		}
		slices.SortStableFunc(reqs, func(a, b dedup.Request) int { return a.Key.Compare(b.Key) })
		reqs = slices.CompactFunc(reqs, func(a, b dedup.Request) bool { return a.Key == b.Key })
		for batch := range slices.Chunk(reqs, importBatch) {
			n, err := s.importSome(ctx, batch, inTx)
			added += n
			if err != nil {
				return added, err
			}
		}
	}
	return added, nil
}

func (s *Store) importSome(ctx context.Context, reqs []dedup.Request,
	inTx bool) (added int, err error) {
	numbers, err := s.dict.placesOf(ctx, reqs)
	if err != nil {
		return 0, err
	}
	rows := newRequestRows(reqs, numbers)
	if inTx {
		err = s.db.ownTx(ctx, "import", func(q *statements, b *pgx.Batch) {
			b.Queue(q.insertEvents[rows.form], rows.insert()...)
		}, func(results pgx.BatchResults) error {
			tag, err := results.Exec()
			added = int(tag.RowsAffected())
			return err
		})
	} else {
		added, err = s.importClaims(ctx, rows)
	}
	if err != nil {
		return 0, err
	}
	return added, nil
}

// importClaims claims and completes the unknown events, in one transaction.
func (s *Store) importClaims(ctx context.Context, rows *requestRows) (added int, err error) {
	t := dedup.NewToken()
	claims, ends := newClaimRows(len(rows.reqs)), newEndRows(len(rows.reqs))
	for i := range rows.reqs {
		c := dedup.Completion{Claim: dedup.Claim{Key: rows.reqs[i].Key, Token: t},
			Retention: rows.reqs[i].Retention}
		if err := errors.Join(claims.add(&c.Claim), ends.add(&c)); err != nil {
			return 0, fmt.Errorf("pgstore: import: %w", err)
		}
	}
	keys, err := s.dict.keyArgs(ctx, &claims.keyRows)
	if err != nil {
		return 0, err
	}
	var n int64
	err = s.db.ownTx(ctx, "import", func(q *statements, b *pgx.Batch) {
		b.Queue(q.insertKeys[rows.form], rows.insert(rows.tokens(t), int64(1))...)
		b.Queue(q.complete, slices.Concat([]any{claims.token}, ends.args(), keys)...)
	}, func(results pgx.BatchResults) error {
		err := results.QueryRow().Scan(&n, nil)
		if err == nil {
			_, err = results.Exec()
		}
		return err
	})
	return int(n), err
}
