package pgstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

var _ dedup.ProgressRecorder = (*Store)(nil)

// RecordProgress implements [dedup.ProgressRecorder] in table idem_progress, with one statement for
// all partitions:
//
//   - A partition without a lag has consumed up to one minute ago, by the server's clock. No
//     later time is stored, even if a producer's clock is ahead.
//   - A partition without a time keeps the time on record.
//   - If a partition went back, or is new, its time is unknown. Then [Reaper] deletes no row of
//     the scope.
//
// If a scope no longer consumes a topic, call [Store.ForgetProgress].
func (s *Store) RecordProgress(ctx context.Context, scope string, progress []dedup.Progress) error {
	if len(progress) == 0 {
		return nil
	}
	rows := newProgressRows(progress)
	return s.db.ownTx(ctx, "record progress", func(q *statements, b *pgx.Batch) {
		b.Queue(q.aging.progress, scope, rows.topic, rows.partition, rows.next, rows.at,
			rows.caughtUp)
	}, func(results pgx.BatchResults) error {
		_, err := results.Exec()
		return err
	})
}

// Progress implements [dedup.ProgressRecorder].
func (s *Store) Progress(ctx context.Context, scope string,
	topics ...string) (known []dedup.Progress, err error) {
	err = s.db.ownTx(ctx, "read progress", func(q *statements, b *pgx.Batch) {
		b.Queue(q.aging.progressRead, scope, topics)
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		known, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p dedup.Progress,
			err error) {
			return p, row.Scan(&p.Topic, &p.Partition, &p.Next)
		})
		return err
	})
	return known, err
}

// ForgetProgress removes a topic that the scope will not consume again. Without this call the
// topic's time stands still, and no row of the scope is deleted any more. Afterwards the store
// no longer waits for copies in that topic. A consumer that still reads the topic records the
// topic again.
func (s *Store) ForgetProgress(ctx context.Context, scope, topic string) error {
	return s.db.ownTx(ctx, "forget progress", func(q *statements, b *pgx.Batch) {
		b.Queue(q.aging.progressForget, scope, topic)
	}, func(results pgx.BatchResults) error {
		_, err := results.Exec()
		return err
	})
}

// progressRows are the columns of progress, sorted (P-04), with each partition once.
type progressRows struct {
	topic     []string
	partition []int32
	next      []int64
	at        []pgtype.Timestamptz
	caughtUp  []bool
}

func newProgressRows(progress []dedup.Progress) progressRows {
	all := slices.Clone(progress)
	place := func(a, b dedup.Progress) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	}
	slices.SortStableFunc(all, place)
	var r progressRows
	for i, p := range all {
		if i+1 < len(all) && place(p, all[i+1]) == 0 {
			continue // the last entry of a partition counts
		}
		r.topic, r.partition = append(r.topic, storable(p.Topic)), append(r.partition, p.Partition)
		r.next, r.caughtUp = append(r.next, p.Next), append(r.caughtUp, p.CaughtUp)
		// A time outside the calendar comes from a broken producer and counts as unknown.
		var at pgtype.Timestamptz
		if y := p.Time.Year(); !p.Time.IsZero() && y >= 1 && y <= 9999 {
			at = pgtype.Timestamptz{Time: p.Time, Valid: true}
		}
		r.at = append(r.at, at)
	}
	return r
}
