package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/outbox"
)

// Fetch implements [outbox.Store] with one statement, without locks, in a transaction that ends
// with the call. The isolation level of the session has no effect. With Skip or SkipRows, each call
// also reads all rows that are left out and come before the end of the result. A million of these
// cost some seconds.
func (o *Outbox) Fetch(ctx context.Context, f outbox.Fetch) (found []outbox.Row, err error) {
	if len(f.Shards) == 0 || f.Limit <= 0 {
		return nil, nil
	}
	err = o.reading(ctx, func(tx querier) error {
		return each(ctx, tx, fetchText(&f), func(rows *sql.Rows) error {
			r, err := scanRow(rows)
			found = append(found, r)
			return err
		})
	})
	if err != nil {
		return nil, explain("fetch", err)
	}
	return found, nil
}

// rowColumns are the columns that scanRow reads first. No driver setting has an influence.
const rowColumns = "o.seq, o.shard, o.topic, o.`key`, o.event_id, o.event_type, o.payload, " +
	"o.headers, "

// fetchText returns the statement: the first waiting rows of each shard, then the oldest of those,
// up to the limits. Rows that are left out come first in the next call. No row is returned without
// the rows of its shard that have lower numbers. Payloads are read for the result only. Rows that
// skipTexts leaves out are read one by one, until the limit of the shard is reached.
func fetchText(f *outbox.Fetch) string {
	each := (f.Limit + len(f.Shards) - 1) / len(f.Shards)
	skips := skipTexts(f)
	var b strings.Builder
	b.WriteString("SELECT " + rowColumns + micros("o.added_at") + ", ")
	b.WriteString(blockedText(f.Halt))
	b.WriteString(" FROM (SELECT c.seq, row_number() OVER w AS n, sum(c.bytes) OVER w AS total FROM (")
	for i, h := range f.Shards {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&b, "(SELECT seq, bytes FROM idem_outbox FORCE INDEX (idem_outbox_state) "+
			"WHERE state = 0 AND shard = %d%s ORDER BY seq LIMIT %d)", h.Shard, skips[h.Shard], each)
	}
	fmt.Fprintf(&b, ") c WINDOW w AS (ORDER BY c.seq)) s STRAIGHT_JOIN idem_outbox o "+
		"FORCE INDEX (PRIMARY) ON o.seq = s.seq WHERE s.n = 1 OR "+
		"(s.n <= %d AND s.total <= %d) ORDER BY o.seq", f.Limit, f.Bytes)
	return b.String()
}

// blockedText returns the expression that is 1 in rows behind a parked row. Without halt the rows
// must also be behind a blocked row, which another relay has left: no row may overtake that one.
func blockedText(halt bool) string {
	behind := func(state string) string {
		return " AND EXISTS (SELECT 1 FROM idem_outbox p FORCE INDEX (idem_outbox_state) " +
			"WHERE p.state = " + state + " AND p.shard = o.shard " +
			"AND p.seq < o.seq AND p.topic = o.topic AND p.`key` = o.`key`)"
	}
	if halt {
		return "o.`key` IS NOT NULL" + behind("2")
	}
	return "o.`key` IS NOT NULL AND EXISTS (SELECT 1 FROM idem_outbox a " +
		"FORCE INDEX (idem_outbox_state) WHERE a.state = 3)" + behind("2") + behind("3")
}

// skipTexts returns the conditions that leave rows out, by shard. Rows without a key may be in any
// shard.
func skipTexts(f *outbox.Fetch) map[int]string {
	texts := map[int]string{}
	pairs := map[int][]string{}
	for _, a := range f.Skip {
		shard := int(outboxrow.ShardOf(&outbox.Entry{Topic: a.Topic, Key: a.Key}))
		pairs[shard] = append(pairs[shard], "("+binary(a.Topic)+", "+binary(a.Key)+")")
	}
	for shard, list := range pairs {
		texts[shard] = " AND (`key` IS NULL OR (topic, `key`) NOT IN (" +
			strings.Join(list, ", ") + "))"
	}
	if len(f.SkipRows) > 0 {
		for _, h := range f.Shards {
			texts[h.Shard] += " AND seq NOT IN " + numbers(f.SkipRows)
		}
	}
	return texts
}

// scanRow reads rowColumns, the time of adding and whether the row is blocked, and further columns
// into more.
func scanRow(rows *sql.Rows, more ...any) (r outbox.Row, err error) {
	var key []byte
	var headers *string
	var added int64
	e := &r.Entry
	err = rows.Scan(append([]any{&r.Seq, &r.Shard, &e.Topic, &key, &e.ID, &e.Type, &e.Payload,
		&headers, &added, &r.Blocked}, more...)...)
	e.Key, e.Headers, r.Added = string(key), outboxrow.DecodeHeaders(headers), time.UnixMicro(added)
	return r, err
}
