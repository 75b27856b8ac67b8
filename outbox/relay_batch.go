package outbox

import (
	"slices"
	"time"
)

// batch is the rows of one round and their results. A relay holds no more than one in memory.
type batch struct {
	step
	began   time.Time
	leases  map[int]Lease // under which the rows were fetched
	rows    []Row
	acked   []bool               // by index of rows: the broker has the row
	stuck   map[aggregateID]bool // no more rows of these are published in this round
	parked  map[aggregateID]bool // a row of these was parked in this round
	broker  int                  // rows that failed because of the broker, the last with seen.Err
	crowded bool                 // there were more failures than can be remembered
	out     settling
	seen    Round
}

// settling is the results of rows, to be recorded. The parked rows are kept for the observers,
// which get them after the store has recorded them.
type settling struct {
	leases map[int]Lease
	what   Settlement
	parked []parkedRow
}

type parkedRow struct {
	row Row
	err error
}

// fill sets the rows that were fetched.
func (b *batch) fill(rows []Row) {
	b.leases = make(map[int]Lease, len(b.shards))
	for _, l := range b.shards {
		b.leases[l.Shard] = l
	}
	slices.SortFunc(rows, func(a, b Row) int { return int(min(max(a.Seq-b.Seq, -1), 1)) })
	b.rows, b.acked, b.seen.Rows = rows, make([]bool, len(rows)), len(rows)
	b.stuck, b.parked = map[aggregateID]bool{}, map[aggregateID]bool{}
}

// publishable returns those of some rows that may be published now, as indexes. The result uses the
// memory of some.
func (b *batch) publishable(some []int, held map[int]Lease, failed failures) []int {
	rows := some[:0]
	for _, i := range some {
		row := &b.rows[i]
		id := aggregateOf(row)
		if row.Blocked {
			b.stuck[id] = true // with the rows behind, also if the store did not mark those
		}
		if b.stuck[id] || failed[id].rests(b.began, b.fresh) {
			continue
		}
		if lease, ok := held[row.Shard]; !ok || lease != b.leases[row.Shard] {
			continue
		}
		rows = append(rows, i)
	}
	return rows
}

// rest returns the indexes of the rows that the broker has not acknowledged.
func (b *batch) rest() []int {
	rest := make([]int, 0, len(b.rows)-b.seen.Sent)
	for i := range b.rows {
		if !b.acked[i] {
			rest = append(rest, i)
		}
	}
	return rest
}

// sent notes the broker's acknowledgement of row i.
func (b *batch) sent(i int) {
	row := &b.rows[i]
	b.acked[i] = true
	b.out.what.Sent = append(b.out.what.Sent, row.RowID())
	b.seen.Sent++
	b.seen.Delay = max(b.seen.Delay, time.Since(row.Added))
}

// fail leaves a row and the rows behind it for later. After a failure no other row of the aggregate
// may be published before it (O-09).
func (b *batch) fail(row *Row, remembered bool) {
	b.stuck[aggregateOf(row)] = true
	b.seen.Failed++
	b.crowded = b.crowded || !remembered
}

// park gives a row up. The rows behind it are left for the next round, or blocked.
func (b *batch) park(row *Row, err error) {
	id := aggregateOf(row)
	b.stuck[id], b.parked[id] = true, true
	if b.out.what.Parked == nil {
		b.out.what.Parked = map[RowID]string{}
	}
	b.out.what.Parked[row.RowID()] = errorText(err)
	b.out.parked = append(b.out.parked, parkedRow{*row, err})
	b.seen.Parked++
}

// block notes the rows that wait for a person: those that the store has found blocked, and with
// halt those behind a row that was parked in this round.
func (b *batch) block(halt bool) {
	for i := range b.rows {
		row := &b.rows[i]
		if _, itself := b.out.what.Parked[row.RowID()]; itself || row.Entry.Key == "" {
			continue
		}
		if row.Blocked || halt && b.parked[aggregateOf(row)] && b.behindParked(row) {
			b.out.what.Blocked = append(b.out.what.Blocked, row.RowID())
			b.seen.Blocked++
		}
	}
}

// behindParked reports whether row comes after a row of its aggregate that was parked in this
// round.
func (b *batch) behindParked(row *Row) bool {
	return slices.ContainsFunc(b.out.parked, func(p parkedRow) bool {
		return p.row.Seq < row.Seq && aggregateOf(&p.row) == aggregateOf(row)
	})
}

// results returns the number of rows with a result.
func (b *batch) results() int {
	return b.seen.Sent + b.seen.Parked + b.seen.Blocked + b.seen.Failed
}

// hopeless reports whether the broker took no row of the batch, and all failures were the broker's.
func (b *batch) hopeless() bool {
	return b.broker > 0 && b.broker == b.seen.Failed && b.seen.Sent+b.seen.Parked == 0
}
