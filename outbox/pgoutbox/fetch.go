package pgoutbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/outbox"
)

// Fetch implements [outbox.Store] in one round trip, without locks. Waiting rows are found by their
// index, up to the limits. With Skip or SkipRows, each call also reads all rows that are left out
// and come before the end of the result. A million of these cost more than a second.
func (o *Outbox) Fetch(ctx context.Context, f outbox.Fetch) (found []outbox.Row, err error) {
	if len(f.Shards) == 0 || f.Limit <= 0 {
		return nil, nil
	}
	shards, _ := split(f.Shards)
	each := (f.Limit + len(shards) - 1) / len(shards)
	args := []any{shards, each, f.Limit, f.Bytes, f.Halt}
	skips := len(f.Skip)+len(f.SkipRows) > 0
	if skips {
		topics, keys := make([]string, len(f.Skip)), make([][]byte, len(f.Skip))
		for i, a := range f.Skip {
			topics[i], keys[i] = a.Topic, []byte(a.Key)
		}
		args = append(args, topics, keys, append([]int64{}, f.SkipRows...))
	}
	err = o.atomic(ctx, func(q *statements, b *pgx.Batch) {
		text := q.fetch
		if skips {
			text = q.fetchSkip
		}
		b.Queue(q.plain)
		b.Queue(text, args...).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows,
				func(row pgx.CollectableRow) (outbox.Row, error) { return scanRow(row) })
			return err
		})
	})
	if err != nil {
		return nil, o.failed("fetch", err)
	}
	return found, nil
}

// split returns the columns of leases.
func split(held []outbox.Lease) (shards []int16, epochs []int64) {
	shards, epochs = make([]int16, len(held)), make([]int64, len(held))
	for i, h := range held {
		shards[i], epochs[i] = int16(h.Shard), h.Epoch
	}
	return shards, epochs
}

// scanRow reads the columns of a row, and further columns into more.
func scanRow(from pgx.CollectableRow, more ...any) (r outbox.Row, err error) {
	var key []byte
	var headers *string
	e := &r.Entry
	err = from.Scan(append([]any{&r.Seq, &r.Shard, &e.Topic, &key, &e.ID, &e.Type, &e.Payload,
		&headers, &r.Added, &r.Blocked}, more...)...)
	e.Key, e.Headers = string(key), outboxrow.DecodeHeaders(headers)
	return r, err
}
