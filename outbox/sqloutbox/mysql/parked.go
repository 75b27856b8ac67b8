package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/idem-go/idem/outbox"
)

// Parked implements [outbox.Operator].
func (o *Outbox) Parked(ctx context.Context, limit int) (found []outbox.Parked, err error) {
	text := "SELECT " + rowColumns + micros("o.added_at") + ", 0, " + micros("o.ended_at") +
		", coalesce(o.error, ''), least(100000, (SELECT count(*) FROM idem_outbox b " +
		"FORCE INDEX (idem_outbox_state) WHERE b.state = 3 AND b.shard = o.shard " +
		"AND b.seq > o.seq AND b.topic = o.topic AND b.`key` = o.`key`)) " +
		"FROM idem_outbox o FORCE INDEX (idem_outbox_state) WHERE o.state = 2 " +
		"ORDER BY o.seq LIMIT " + strconv.Itoa(limit)
	err = o.reading(ctx, func(tx querier) error {
		return each(ctx, tx, text, func(rows *sql.Rows) (err error) {
			var p outbox.Parked
			var at int64
			p.Row, err = scanRow(rows, &at, &p.Error, &p.Behind)
			p.At = time.UnixMicro(at)
			found = append(found, p)
			return err
		})
	})
	if err != nil {
		return nil, explain("list parked rows", err)
	}
	return found, nil
}

// Retry implements [outbox.Operator].
func (o *Outbox) Retry(ctx context.Context, row outbox.RowID) error {
	return o.endParking(ctx, "retry", row, "UPDATE idem_outbox FORCE INDEX (PRIMARY) "+
		"SET state = 0, ended_at = NULL, error = NULL WHERE seq = ")
}

// Skip implements [outbox.Operator].
func (o *Outbox) Skip(ctx context.Context, row outbox.RowID) error {
	return o.endParking(ctx, "skip", row, "DELETE FROM idem_outbox WHERE seq = ")
}

// errGone is the answer that no such parked row exists.
var errGone = errors.New("no such row")

func (o *Outbox) endParking(
	ctx context.Context, verb string, row outbox.RowID, end string,
) error {
	err := o.atomic(ctx, func(tx querier) error { return endParked(ctx, tx, row, end) })
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: %d of event %q", outbox.ErrNotParked, row.Seq, row.EventID)
	}
	return explain(verb, err)
}

// endParked ends the parking of a row, and frees the rows that are blocked behind this row only.
// These are the rows before the next parked row, if no parked row comes earlier. Relays that park
// or block rows of the shard wait for the lock of the shard. So no row becomes blocked behind a row
// that has just been released. A number that belongs to another event is left alone: a fail-over
// may give out numbers twice.
func endParked(ctx context.Context, tx querier, row outbox.RowID, end string) error {
	number := strconv.FormatInt(row.Seq, 10)
	this := "FROM idem_outbox FORCE INDEX (PRIMARY) WHERE state = 2 AND seq = " + number
	var shard int
	var topic, event string
	var key sql.Null[[]byte]
	err := one(ctx, tx, "SELECT shard "+this, &shard)
	if err == nil {
		err = one(ctx, tx, "SELECT shard FROM idem_outbox_shards FORCE INDEX (PRIMARY) "+
			"WHERE shard = "+strconv.Itoa(shard)+" FOR UPDATE", &shard)
	}
	if err == nil {
		err = one(ctx, tx, "SELECT topic, `key`, event_id "+this+" FOR UPDATE", &topic, &key, &event)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errGone
	case err != nil:
		return err
	case event != row.EventID:
		return errGone
	}
	if _, err := exec(ctx, tx, end+number); err != nil || !key.Valid {
		return err
	}
	aggregate := " AND shard = " + strconv.Itoa(shard) + " AND topic = " + binary(topic) +
		" AND `key` = " + binary(string(key.V))
	var first sql.Null[int64]
	err = one(ctx, tx, "SELECT min(seq) FROM idem_outbox FORCE INDEX (idem_outbox_state) "+
		"WHERE state = 2"+aggregate, &first)
	if err != nil {
		return err
	}
	if first.Valid {
		aggregate += " AND seq < " + strconv.FormatInt(first.V, 10)
	}
	freed, err := list(ctx, tx, "SELECT seq FROM idem_outbox FORCE INDEX (idem_outbox_state) "+
		"WHERE state = 3"+aggregate+" ORDER BY seq")
	if err != nil {
		return err
	}
	return inChunks(freed, func(chunk []int64) error {
		_, err := exec(ctx, tx, "UPDATE idem_outbox FORCE INDEX (PRIMARY) SET state = 0 "+
			"WHERE state = 3 AND seq IN "+numbers(chunk)+" ORDER BY seq")
		return err
	})
}
