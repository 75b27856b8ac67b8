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
	// listPage is the number of records that travel at once.
	listPage = 500
	// listLimit bounds each step of a list: the sort, and the calls of yield for one page.
	listLimit = 10 * time.Minute
)

// List implements [dedup.Lister]. The server reads both tables once and sorts the matches of f.
// There is no index for this, so the work grows with the tables.
//
// Until List returns, calls of yield included, List uses one connection of the pool and one
// snapshot of the database. The snapshot keeps the server from removing dead rows. The server
// ends the list if ten minutes pass between two pages of 500 records. A server that is silent counts
// as unavailable: ten minutes and 30 seconds before the first page, 30 seconds before others.
// Changes made by yield do not show in the list.
//
// In the compact layout, an ID that is stored as a hash is shown as "sha256:" and 32 hexadecimal
// digits. This text is for reading only: no verb accepts it as an ID. To find the record of an ID,
// use [Store.Find].
func (s *Store) List(ctx context.Context, f dedup.Filter, limit int,
	yield func(dedup.Record) bool) error {
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
	yielded := false // then the list cannot be repeated
	var failed error
	err := s.db.operate(ctx, "list", listLimit,
		func(ctx context.Context, tx pgx.Tx, q *statements) error {
			open := func(ctx context.Context, tx pgx.Tx, q *statements) error {
				_, err := tx.Exec(ctx, q.operator.list, args...)
				return err
			}
			if err := s.db.within(listLimit, open)(ctx, tx, q); err != nil {
				return err
			}
			limit := listLimit + s.db.silence // the first page waits for the sort
			for more := true; more; {
				page, err := fetchRecords(ctx, tx, limit)
				limit = s.db.silence
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

// fetchRecords reads the next page. After limit the server is gone.
func fetchRecords(ctx context.Context, tx pgx.Tx, limit time.Duration) (page []dedup.Record,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
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

// statuses returns values of the column status. The result is empty, not nil, if no state is
// known.
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

// Find implements [dedup.Lister]. Find reads only the index of the key: a few pages for each
// tenant, scope and type in the store.
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
			r.Key.ID = id // the row may hold a hash only
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
