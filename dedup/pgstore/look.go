package pgstore

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Look implements [dedup.Looker]: one round trip, in a separate transaction that locks and
// writes no row. In the compact layout the first look at a tenant, scope and type costs another
// round trip in each process.
func (s *Store) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.see(ctx, reqs, answers, func(q *statements, rows *requestRows) (string, []any) {
		return q.seeKeys[rows.form], rows.existing([]pgtype.UUID(nil)) // no claim has this token
	})
}

// LookTx implements [dedup.TxLooker], like [Store.Look] for claims. LookTx never waits for a
// transaction.
func (s *Store) LookTx(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.see(ctx, reqs, answers, func(q *statements, rows *requestRows) (string, []any) {
		return q.seeEvents[rows.form], rows.existing()
	})
}

func (s *Store) see(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer,
	text func(*statements, *requestRows) (string, []any)) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return fmt.Errorf("pgstore: look: %w", err)
	}
	if len(reqs) == 0 {
		return nil
	}
	places, err := s.dict.placesKnown(ctx, reqs)
	if err == nil {
		err = lookFor(ctx, s.db, reqs, answers, places, text)
	}
	if err != nil {
		clear(answers)
	}
	return err
}

// lookFor answers without writing. lookFor does not see uncommitted rows: the claim that follows
// meets those.
//
// Duplicates come in runs. If most events of the last group were known, the next group begins
// with a look. If no event of that group is known, the look costs a round trip for no gain.
func lookFor(ctx context.Context, db *database, reqs []dedup.Request, answers []dedup.Answer,
	places []place, text func(*statements, *requestRows) (string, []any)) error {
	rows := newRequestRows(reqs, places)
	return db.ownTx(ctx, "look", func(q *statements, b *pgx.Batch) {
		clear(answers)
		sql, args := text(q, rows)
		b.Queue(sql, args...)
	}, func(results pgx.BatchResults) error {
		_, err := readExisting(results, reqs, answers)
		return err
	})
}
