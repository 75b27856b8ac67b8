package pgstore

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Look implements [dedup.Looker]: one round trip, in a transaction of its own that neither locks nor writes a row. In the compact
// layout the first question about a tenant, scope and type that this process does not know costs another one.
func (s *Store) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	return s.see(ctx, reqs, answers, func(q *statements, rows *requestRows) (string, []any) {
		return q.seeKeys[rows.form], rows.existing(pgtype.UUID{}) // nobody's token
	})
}

// LookTx implements [dedup.TxLooker], as [Store.Look] does for claims. It never waits for a transaction.
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

// lookFor answers without writing. A row that is being written is not seen: who takes what is left meets it.
//
// A claim looks for what is over already where most events are duplicates, which come in runs. It costs a round trip where none
// are: a group begins with it if most events of the group before were known.
func lookFor(ctx context.Context, db *database, reqs []dedup.Request, answers []dedup.Answer, places []place,
	text func(*statements, *requestRows) (string, []any)) error {
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
