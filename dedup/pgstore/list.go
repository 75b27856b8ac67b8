package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// listPage is how many records travel at once.
	listPage = 500
	// listLimit bounds each step of a list: sorting what matches, and what yield does with a page.
	listLimit = 10 * time.Minute
)

// List implements [dedup.Lister]. It reads both tables once and sorts what f chooses at the server, which is work in
// proportion to the tables: no index is kept for it. While it lasts, yield included, it takes one connection of the pool and
// one snapshot of the database, which keeps dead rows from being cleaned up, and after ten minutes between two pages of 500
// the server ends it. What yield changes does not change the list.
//
// In the compact layout, an ID of which there is only a hash is shown as "sha256:" and its 32 hexadecimal digits. That is
// for reading: no verb takes it for the ID. Who has the ID sees with [Store.Find] which record is its own.
func (s *Store) List(ctx context.Context, f dedup.Filter, limit int, yield func(dedup.Record) bool) error {
	args := []any{f.Scope, f.Type, nil, nil, f.Stuck, nil}
	if len(f.States) > 0 {
		args[2] = statuses(f.States)
	}
	if f.Unchanged > 0 {
		args[3] = microseconds(f.Unchanged)
	}
	if limit > 0 {
		args[5] = int64(limit)
	}
	yielded := false // then it cannot be begun again
	var failed error
	err := s.db.operate(ctx, "list", listLimit, func(ctx context.Context, tx pgx.Tx, q *statements) error {
		if _, err := tx.Exec(ctx, q.operator.list, args...); err != nil {
			return err
		}
		for more := true; more; {
			page, err := fetchRecords(ctx, tx)
			if err != nil && yielded {
				failed = err
				return nil
			}
			if err != nil {
				return err
			}
			more = len(page) == listPage
			for _, r := range page {
				yielded = true
				if !yield(r) {
					return nil
				}
			}
		}
		return nil
	})
	if failed != nil {
		err = s.db.failed(ctx, "list", failed)
	}
	return err
}

func fetchRecords(ctx context.Context, tx pgx.Tx) (page []dedup.Record, err error) {
	rows, err := tx.Query(ctx, fmt.Sprintf("FETCH %d FROM idem_list", listPage))
	if err != nil {
		return nil, err
	}
	_, err = readRecords(rows, func(r dedup.Record, _ int64) bool {
		page = append(page, r)
		return true
	})
	return page, err
}

// statuses is what the column status may say, none of it if no state is known.
func statuses(of []dedup.State) []string {
	all := []string{}
	for status, state := range states {
		for _, s := range of {
			if s == state {
				all = append(all, status)
			}
		}
	}
	return all
}

// Find implements [dedup.Lister]. It reads the index of the key only: a few pages for each kind (tenant, scope and type)
// that the store has.
func (s *Store) Find(ctx context.Context, scope, id string) (records []dedup.Record, err error) {
	if err := (dedup.Key{Scope: scope, ID: id}).Validate(); err != nil {
		return nil, fmt.Errorf("pgstore: find: %w", err)
	}
	args := []any{scope, id}
	if s.db.layout == compact {
		form, bytes := compactID(id)
		args = []any{scope, int16(form), pgtype.UUID{Bytes: bytes, Valid: true}}
	}
	err = s.db.ownTx(ctx, "find", func(q *statements, b *pgx.Batch) {
		records = nil
		b.Queue(q.operator.find, args...)
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		_, err = readRecords(rows, func(r dedup.Record, _ int64) bool {
			r.Key.ID = id // a hash cannot be turned back
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
