package sqlstore

import (
	"context"
	"database/sql"
	"strconv"

	"github.com/idem-go/idem/dedup"
)

var _ dedup.ConflictNoter = (*Store)(nil)

// NoteConflict implements [dedup.ConflictNoter], in table event_starts and a transaction of its
// own. A noted record is a row with no starts. NoteConflict neither writes nor locks the row of the
// event.
func (s *Store) NoteConflict(ctx context.Context, key dedup.Key, copyOf dedup.Origin) error {
	if err := key.Validate(); err != nil {
		return s.wrong("note conflict", err)
	}
	return s.ownTx(ctx, "note conflict", nil, func(ctx context.Context, w *work) error {
		where, args := w.ofRecord(key, copyOf)
		var n int64
		there, err := w.maybe(ctx, "SELECT starts FROM "+startsTable+" WHERE "+where, args, &n)
		if err != nil || there {
			return err
		}
		if err := w.readClock(ctx); err != nil {
			return err
		}
		return startsRelation.add(ctx, w.q, w.d, w.starts(key, copyOf, 0))
	})
}

// Conflicts implements [dedup.ConflictNoter].
func (s *Store) Conflicts(ctx context.Context, key dedup.Key, limit int) (noted []dedup.Origin,
	err error) {
	if err := key.Validate(); err != nil {
		return nil, s.wrong("conflicts", err)
	}
	err = s.reading(ctx, "conflicts", nil, func(ctx context.Context, w *work) error {
		noted = nil
		where, args := w.d.chosen([]dedup.Key{key})
		return each(ctx, w.q, "SELECT origin_topic, origin_partition, origin_offset FROM "+
			startsTable+" WHERE starts = 0 AND "+where+
			" ORDER BY updated_at, origin_topic, origin_partition, origin_offset LIMIT "+
			strconv.Itoa(max(limit, 0)), args, func(rows *sql.Rows) error {
			var o dedup.Origin
			if err := rows.Scan(&o.Topic, &o.Partition, &o.Offset); err != nil {
				return err
			}
			noted = append(noted, o)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return noted, nil
}
