package pgoutbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// maxReason is the greatest length of the reason of a parked row, in bytes.
const maxReason = 1 << 10

// Settle implements [outbox.Store] in one round trip. Sent rows alone are one statement. With
// parked or blocked rows Settle is a transaction. During that transaction no relay can take the
// shards, and no person can retry or skip their rows.
func (o *Outbox) Settle(
	ctx context.Context, relay string, held []outbox.Lease, s outbox.Settlement,
) (lost []int, err error) {
	q, err := o.pooled(ctx)
	if err != nil {
		return nil, o.failed("settle", err)
	}
	text := q.settleSent
	if s.Keep {
		text = q.settleKept
	}
	shards, epochs := split(held)
	sent, sentIDs := columnsOf(s.Sent)
	if len(s.Parked)+len(s.Blocked) == 0 {
		rows, err := o.pool.Query(ctx, text, shards, epochs, relay, sent, sentIDs)
		if err == nil {
			lost, err = pgx.CollectRows(rows, pgx.RowTo[int])
		}
		return lost, o.failed("settle", err)
	}
	parked, parkedIDs := columnsOf(slices.Collect(maps.Keys(s.Parked)))
	reasons := make([]string, len(parked))
	for i, seq := range parked {
		reasons[i] = storable(s.Parked[outbox.RowID{Seq: seq, EventID: parkedIDs[i]}])
	}
	blocked, blockedIDs := columnsOf(s.Blocked)
	err = o.atomic(ctx, func(q *statements, b *pgx.Batch) {
		b.Queue(q.settleShards, shards, epochs, relay)
		b.Queue(q.settleRows, slices.Concat(sent, parked, blocked))
		b.Queue(text, shards, epochs, relay, sent, sentIDs).Query(func(rows pgx.Rows) (err error) {
			lost, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		})
		b.Queue(q.settleParked, shards, epochs, relay, parked, parkedIDs, reasons)
		b.Queue(q.settleBlocked, shards, epochs, relay, blocked, blockedIDs)
	})
	if err != nil {
		return nil, o.failed("settle", err)
	}
	return lost, nil
}

// columnsOf returns the numbers of rows in ascending order, and the event IDs in the same order.
func columnsOf(rows []outbox.RowID) (seqs []int64, ids []string) {
	rows = slices.SortedFunc(slices.Values(rows),
		func(a, b outbox.RowID) int { return cmp.Compare(a.Seq, b.Seq) })
	seqs, ids = make([]int64, len(rows)), make([]string, len(rows))
	for i, r := range rows {
		seqs[i], ids[i] = r.Seq, r.EventID
	}
	return seqs, ids
}

// storable shortens a text, and removes bytes that a text column refuses.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), maxReason)], ""), "\x00", "")
}

// Purge implements [outbox.Store]. Rows that another call is deleting are left out.
func (o *Outbox) Purge(ctx context.Context, keep time.Duration, limit int) (int64, error) {
	q, err := o.pooled(ctx)
	if err != nil {
		return 0, o.failed("purge", err)
	}
	tag, err := o.pool.Exec(ctx, q.purge, keep.Microseconds(), limit)
	return tag.RowsAffected(), o.failed("purge", err)
}

// Backlog implements [outbox.Store]. Only indexes are read, up to limit.
func (o *Outbox) Backlog(ctx context.Context, limit int) (b outbox.Backlog, err error) {
	var oldest *int64
	err = o.atomic(ctx, func(q *statements, batch *pgx.Batch) {
		batch.Queue(q.plain)
		batch.Queue(q.backlog, limit, outbox.Shards).QueryRow(func(row pgx.Row) error {
			return row.Scan(&b.Waiting, &b.Parked, &b.Blocked, &oldest)
		})
	})
	if err != nil {
		return outbox.Backlog{}, o.failed("backlog", err)
	}
	if oldest != nil {
		b.Oldest = time.Duration(*oldest) * time.Microsecond
	}
	return b, nil
}
