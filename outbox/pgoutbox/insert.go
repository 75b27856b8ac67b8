package pgoutbox

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/outbox"
)

// channel is the channel of NOTIFY and LISTEN.
const channel = "idem_outbox"

// insert writes entries, sorted. Their numbers ascend in the order of commits within each
// aggregate. The reason is that a transaction draws numbers after it has got the locks of all its
// aggregates, and holds the locks until its end. A call of insert takes one round trip for each
// chunk.
func (o *Outbox) insert(ctx context.Context, tx pgx.Tx, entries []outbox.Entry) error {
	q, err := o.statements(ctx, tx)
	if err != nil {
		return err
	}
	notify := o.notify != nil && o.notify.due(time.Now())
	if len(entries) == 1 && !notify {
		text, args, err := insertSingle(q, &entries[0])
		if err == nil {
			_, err = tx.Exec(ctx, text, args...)
		}
		return err
	}
	outbox.Sort(entries)
	var b pgx.Batch
	queueLocks(&b, q, entries)
	for len(entries) > 0 {
		n := outboxrow.Chunk(entries, 0)
		if err := queueInsert(&b, q, entries[:n]); err != nil {
			return err
		}
		if entries = entries[n:]; len(entries) == 0 && notify {
			b.Queue("SELECT pg_notify('" + channel + "', '')")
		}
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		b = pgx.Batch{}
	}
	return nil
}

// queueInsert inserts a chunk. The locks of the chunk were queued before.
func queueInsert(b *pgx.Batch, q *statements, entries []outbox.Entry) error {
	args, err := columns(entries)
	if err == nil {
		b.Queue(q.insert, args...)
	}
	return err
}

// insertSingle returns the statement for one entry with its locks, and the arguments. A single
// entry needs no arrays. For arrays, pgx allocates the elements one by one.
func insertSingle(q *statements, e *outbox.Entry) (text string, args []any, err error) {
	headers, err := outboxrow.EncodeHeaders(e.Headers)
	if err != nil {
		return "", nil, err
	}
	args = append(make([]any, 0, 9), outboxrow.ShardOf(e), e.Topic, []byte(e.Key), e.ID, e.Type, e.Payload,
		headers)
	if e.Key == "" {
		args[2] = []byte(nil)
		return q.insertOne, args, nil
	}
	return q.insertAlone, append(args, outboxrow.WholeLock(q.schema),
		outboxrow.LockOf(q.schema, e)), nil
}

// queueLocks locks the aggregates of entries.
func queueLocks(b *pgx.Batch, q *statements, entries []outbox.Entry) {
	locks := outboxrow.LocksOf(q.schema, entries)
	switch {
	case locks.None:
	case len(locks.Each) == 0:
		b.Queue("SELECT pg_advisory_xact_lock($1::bigint)", locks.Whole)
	default:
		b.Queue("SELECT pg_advisory_xact_lock_shared($1::bigint)", locks.Whole)
		b.Queue(q.lockOne, locks.Each)
	}
}

// columns returns the arguments of an insert.
func columns(entries []outbox.Entry) ([]any, error) {
	n := len(entries)
	shards, topics, keys := make([]int16, n), make([]string, n), make([][]byte, n)
	ids, types := make([]string, n), make([]string, n)
	payloads, headers := make([][]byte, n), make([]*string, n)
	for i := range entries {
		e := &entries[i]
		shards[i], topics[i] = outboxrow.ShardOf(e), e.Topic
		ids[i], types[i], payloads[i] = e.ID, e.Type, e.Payload
		if e.Key != "" {
			keys[i] = []byte(e.Key)
		}
		var err error
		if headers[i], err = outboxrow.EncodeHeaders(e.Headers); err != nil {
			return nil, err
		}
	}
	return []any{shards, topics, keys, ids, types, payloads, headers}, nil
}
