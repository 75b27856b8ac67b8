package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem/outbox"
)

// Purge implements [outbox.Store]. Rows that another call is deleting are left out.
//
// Rows are found without locks, and locked by their number only: locks on entries of another index
// could deadlock with the deletion of rows.
func (o *Outbox) Purge(
	ctx context.Context, keep time.Duration, limit int,
) (deleted int64, err error) {
	err = o.atomic(ctx, func(tx querier) error {
		old, err := list(ctx, tx, fmt.Sprintf("SELECT seq FROM idem_outbox "+
			"FORCE INDEX (idem_outbox_sent) WHERE state = 1 AND ended_at < UTC_TIMESTAMP(6) - "+
			"INTERVAL %d MICROSECOND ORDER BY ended_at LIMIT %d", keep.Microseconds(), limit))
		if err != nil {
			return err
		}
		slices.Sort(old)
		deleted = 0
		return inChunks(old, func(chunk []int64) error {
			free, err := list(ctx, tx, "SELECT seq FROM idem_outbox FORCE INDEX (PRIMARY) "+
				"WHERE seq IN "+numbers(chunk)+" ORDER BY seq FOR UPDATE SKIP LOCKED")
			if err != nil || len(free) == 0 {
				return err
			}
			n, err := exec(ctx, tx, "DELETE o FROM idem_outbox o FORCE INDEX (PRIMARY) "+
				"WHERE o.seq IN "+numbers(free))
			deleted += n
			return err
		})
	})
	if err != nil {
		return 0, explain("purge", err)
	}
	return deleted, nil
}

// Backlog implements [outbox.Store]. Only indexes are read, up to limit.
func (o *Outbox) Backlog(ctx context.Context, limit int) (b outbox.Backlog, err error) {
	var age sql.Null[int64]
	err = o.reading(ctx, func(tx querier) error {
		return one(ctx, tx, backlogText(limit), &b.Waiting, &b.Parked, &b.Blocked, &age)
	})
	if err != nil {
		return outbox.Backlog{}, explain("backlog", err)
	}
	if age.Valid {
		b.Oldest = time.Duration(max(0, age.V)) * time.Microsecond
	}
	return b, nil
}

// backlogText returns the statement. Each count stops at its limit. The rows of a shard ascend with
// time, almost: the first row of a shard is about the oldest one.
func backlogText(limit int) string {
	const from = " FROM idem_outbox FORCE INDEX (idem_outbox_state) WHERE state = "
	var b strings.Builder
	b.WriteString("SELECT ")
	for _, state := range []int{0, 2, 3} {
		fmt.Fprintf(&b, "(SELECT count(*) FROM (SELECT 1 AS one"+from+"%d LIMIT %d) c), ",
			state, limit)
	}
	b.WriteString("(SELECT TIMESTAMPDIFF(MICROSECOND, min(f.added_at), UTC_TIMESTAMP(6)) FROM (")
	for shard := range outbox.Shards {
		if shard > 0 {
			b.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&b, "(SELECT added_at"+from+"0 AND shard = %d ORDER BY seq LIMIT 1)", shard)
	}
	b.WriteString(") f)")
	return b.String()
}
