package mysql

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/outbox"
)

const (
	// maxReason is the greatest length of the reason of a parked row, in bytes.
	maxReason = 1 << 10
	// maxList is the greatest number of rows in a statement. MariaDB makes a table of 1,000 numbers
	// and more, and reads the rows in another order then.
	maxList = 500
)

// Settle implements [outbox.Store] in one transaction. With parked or blocked rows no relay can
// take the shards during that transaction, and no person can retry or skip their rows.
func (o *Outbox) Settle(
	ctx context.Context, relay string, held []outbox.Lease, s outbox.Settlement,
) (lost []int, err error) {
	err = o.atomic(ctx, func(tx querier) (err error) {
		lost, err = settle(ctx, tx, relay, held, &s)
		return err
	})
	if err != nil {
		return nil, explain("settle", err)
	}
	return lost, nil
}

func settle(
	ctx context.Context, tx querier, relay string, held []outbox.Lease, s *outbox.Settlement,
) ([]int, error) {
	rest := ""
	if len(s.Parked)+len(s.Blocked) > 0 {
		shards := make([]int, len(held))
		for i, h := range held {
			shards[i] = h.Shard
		}
		rest = "FORCE INDEX (PRIMARY) WHERE shard IN " + numbers(shards) +
			" ORDER BY shard FOR UPDATE"
	}
	shards, err := readShards(ctx, tx, rest)
	if err != nil {
		return nil, err
	}
	mine, lost := fence(shards, relay, held)
	reasons := make(map[int64]string, len(s.Parked))
	for row, reason := range s.Parked {
		reasons[row.Seq] = reason
	}
	allParked := slices.Collect(maps.Keys(s.Parked))
	rows, err := lockRows(ctx, tx, slices.Concat(s.Sent, allParked, s.Blocked), mine)
	if err != nil {
		return nil, err
	}
	ended := deleteText
	if s.Keep {
		ended = keepText
	}
	sent := rows.with(s.Sent, 0, 2, 3)
	if err := inChunks(sent, func(chunk []int64) error {
		_, err := exec(ctx, tx, ended(chunk))
		return err
	}); err != nil {
		return nil, err
	}
	for _, seq := range sent { // a row that was sent is neither parked nor blocked
		delete(rows, seq)
	}
	parked := rows.with(allParked, 0)
	if err := inChunks(parked, func(chunk []int64) error {
		_, err := exec(ctx, tx, parkText(chunk, reasons))
		return err
	}); err != nil {
		return nil, err
	}
	for _, seq := range parked {
		delete(rows, seq)
	}
	return lost, inChunks(rows.with(s.Blocked, 0), func(chunk []int64) error {
		return block(ctx, tx, chunk)
	})
}

// deleteText deletes rows. With a list of numbers, MariaDB reads all rows of a small table, and
// waits for each row that a writer has not committed. So each row is looked up by its number.
func deleteText(seqs []int64) string {
	return "DELETE o FROM " + table(seqs) +
		" AS n STRAIGHT_JOIN idem_outbox o FORCE INDEX (PRIMARY) ON o.seq = n.seq"
}

// keepText marks rows as sent.
func keepText(seqs []int64) string {
	return "UPDATE idem_outbox FORCE INDEX (PRIMARY) " +
		"SET state = 1, ended_at = UTC_TIMESTAMP(6) WHERE seq IN " + numbers(seqs)
}

// fence returns the shards that relay holds in the epochs of held, and the others.
func fence(shards []shardRow, relay string, held []outbox.Lease) (mine, lost []int) {
	epochs := map[int]int64{} // of the relay's shards
	for i := range shards {
		if s := &shards[i]; s.relay == relay {
			epochs[s.shard] = s.epoch
		}
	}
	for _, h := range held {
		if epoch, owned := epochs[h.Shard]; owned && epoch == h.Epoch {
			mine = append(mine, h.Shard)
		} else {
			lost = append(lost, h.Shard)
		}
	}
	slices.Sort(lost)
	return mine, lost
}

// lockedRow is a row that the transaction has locked.
type lockedRow struct {
	state int
	event string // the event's ID
}

// locked are locked rows by their number.
type locked map[int64]lockedRow

// with returns the numbers of those of rows that are in one of the states, in ascending order. A
// number that belongs to another event is left out.
func (l locked) with(rows []outbox.RowID, in ...int) (found []int64) {
	for _, r := range rows {
		row, ok := l[r.Seq]
		if ok && row.event == r.EventID && slices.Contains(in, row.state) {
			found = append(found, r.Seq)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// lockRows locks those rows that lie in shards, in the order of their numbers. So two relays that
// both seem to hold one shard cannot deadlock.
func lockRows(
	ctx context.Context, tx querier, all []outbox.RowID, shards []int,
) (locked, error) {
	seqs := make([]int64, len(all))
	for i, r := range all {
		seqs[i] = r.Seq
	}
	slices.Sort(seqs)
	found := locked{}
	return found, inChunks(slices.Compact(seqs), func(chunk []int64) error {
		return each(ctx, tx, "SELECT seq, state, event_id FROM idem_outbox FORCE INDEX (PRIMARY) "+
			"WHERE seq IN "+numbers(chunk)+" AND shard IN "+numbers(shards)+
			" ORDER BY seq FOR UPDATE",
			func(rows *sql.Rows) error {
				var seq int64
				var row lockedRow
				if err := rows.Scan(&seq, &row.state, &row.event); err != nil {
					return err
				}
				found[seq] = row
				return nil
			})
	})
}

// inChunks calls fn with parts of seqs.
func inChunks(seqs []int64, fn func([]int64) error) error {
	for chunk := range slices.Chunk(seqs, maxList) {
		if err := fn(chunk); err != nil {
			return err
		}
	}
	return nil
}

func parkText(seqs []int64, reasons map[int64]string) string {
	var b strings.Builder
	b.WriteString("UPDATE idem_outbox FORCE INDEX (PRIMARY) SET state = 2, " +
		"ended_at = UTC_TIMESTAMP(6), error = CASE seq")
	for _, seq := range seqs {
		n := numbers([]int64{seq})
		b.WriteString(" WHEN " + n + " THEN " + text(storable(reasons[seq])))
	}
	b.WriteString(" END WHERE seq IN " + numbers(seqs))
	return b.String()
}

// storable shortens a text, and removes bytes that are not UTF-8.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), maxReason)], ""), "\x00", "")
}

// block blocks only rows that are still behind a parked row: a person may have released that row
// meanwhile.
func block(ctx context.Context, tx querier, seqs []int64) error {
	behind, err := list(ctx, tx, "SELECT b.seq FROM idem_outbox b FORCE INDEX (PRIMARY) "+
		"WHERE b.seq IN "+numbers(seqs)+" AND EXISTS (SELECT 1 FROM idem_outbox p "+
		"FORCE INDEX (idem_outbox_state) WHERE p.state = 2 AND p.shard = b.shard "+
		"AND p.seq < b.seq AND p.topic = b.topic AND p.`key` = b.`key`)")
	if err != nil || len(behind) == 0 {
		return err
	}
	_, err = exec(ctx, tx, "UPDATE idem_outbox FORCE INDEX (PRIMARY) SET state = 3 WHERE seq IN "+
		numbers(behind))
	return err
}
