package sqlstore

import (
	"context"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

var _ dedup.StartCounter = (*Store)(nil)

const startsTable = "event_starts"

// CountStart implements [dedup.StartCounter], in a transaction of its own. A database with one
// writer cannot count while a transaction is lent: the call then waits, and fails.
func (s *Store) CountStart(ctx context.Context, key dedup.Key, o dedup.Origin) (starts uint32,
	err error) {
	if err := key.Validate(); err != nil {
		return 0, s.wrong("count start", err)
	}
	err = s.ownTx(ctx, "count start", nil, func(ctx context.Context, w *work) error {
		starts = 0
		found, err := w.read(ctx, eventsTable, []dedup.Key{key}, "")
		if err != nil {
			return err
		}
		if r := found[key]; r != nil && r.State == decision.Done {
			where, args := w.d.chosen([]dedup.Key{key})
			_, err := w.q.ExecContext(ctx,
				"DELETE FROM "+startsTable+" WHERE starts > 0 AND "+where, args...)
			return err
		}
		starts, err = w.countStart(ctx, key, o)
		return err
	})
	if err != nil {
		return 0, err
	}
	return starts, nil
}

func (w *work) countStart(ctx context.Context, key dedup.Key, o dedup.Origin) (uint32, error) {
	where, args := w.ofRecord(key, o)
	var n int64
	there, err := w.maybe(ctx, "SELECT starts FROM "+startsTable+" WHERE "+where+w.d.Lock, args, &n)
	if err != nil {
		return 0, err
	}
	n++
	write := startsRelation.add
	if there {
		write = startsRelation.replace
	}
	return uint32(n), write(ctx, w.q, w.d, w.starts(key, o, n))
}

var startsRelation = relation{startsTable, []string{"tenant", "scope", "event_type", "event_id",
	"origin_topic", "origin_partition", "origin_offset", "starts", "updated_at"}, 7}

// starts is the row of a record of an event.
func (w *work) starts(key dedup.Key, o dedup.Origin, n int64) [][]any {
	return [][]any{{key.Tenant, key.Scope, key.Type, key.ID, o.Topic, int64(o.Partition), o.Offset,
		n, w.d.Time(w.now)}}
}

// ofRecord is the condition for one record of a key.
func (w *work) ofRecord(key dedup.Key, o dedup.Origin) (where string, args []any) {
	where, args = w.d.chosen([]dedup.Key{key})
	n := len(args)
	where += " AND origin_topic = " + w.d.Param(n+1) + " AND origin_partition = " +
		w.d.Param(n+2) + " AND origin_offset = " + w.d.Param(n+3)
	return where, append(args, o.Topic, int64(o.Partition), o.Offset)
}

// ClearStarts implements [dedup.StartCounter].
func (s *Store) ClearStarts(ctx context.Context, key dedup.Key, o dedup.Origin) error {
	if err := key.Validate(); err != nil {
		return s.wrong("clear starts", err)
	}
	return s.ownTx(ctx, "clear starts", nil, func(ctx context.Context, w *work) error {
		where, args := w.ofRecord(key, o)
		_, err := w.q.ExecContext(ctx, "DELETE FROM "+startsTable+" WHERE "+where, args...)
		return err
	})
}
