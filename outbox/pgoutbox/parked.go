package pgoutbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// Parked is a parked row.
type Parked = outbox.Parked

// ErrNotParked is [outbox.ErrNotParked].
var ErrNotParked = outbox.ErrNotParked

// Parked returns at most limit parked rows, the lowest number first.
func (o *Outbox) Parked(ctx context.Context, limit int) ([]Parked, error) {
	q, err := o.pooled(ctx)
	if err != nil {
		return nil, o.failed("list parked rows", err)
	}
	rows, err := o.pool.Query(ctx, q.parked, limit)
	if err != nil {
		return nil, o.failed("list parked rows", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Parked, err error) {
		p.Row, err = scanRow(row, &p.At, &p.Error, &p.Behind)
		return p, err
	})
	return found, o.failed("list parked rows", err)
}

// Retry implements [outbox.Operator]: it has the relays publish this parked row again, and the rows
// that are blocked behind it, in their order. Rows that are also behind another parked row stay
// blocked. The error matches [ErrNotParked], and nothing changes, if no parked row has both the
// number and the event ID.
func (o *Outbox) Retry(ctx context.Context, row outbox.RowID) error {
	return o.endParking(ctx, "retry", row, func(q *statements) string { return q.parkedRetry })
}

// Skip implements [outbox.Operator]: it deletes this parked row, which is never published then. The
// rows that are blocked behind it are published, except those behind another parked row. The error
// matches [ErrNotParked], and nothing changes, if no parked row has both the number and the event
// ID.
func (o *Outbox) Skip(ctx context.Context, row outbox.RowID) error {
	return o.endParking(ctx, "skip", row, func(q *statements) string { return q.skipRow })
}

func (o *Outbox) endParking(
	ctx context.Context, verb string, this outbox.RowID, text func(*statements) string,
) error {
	var found int64
	err := o.atomic(ctx, func(q *statements, b *pgx.Batch) {
		b.Queue(q.parkedLock, this.Seq)
		b.Queue(text(q), this.Seq, this.EventID).QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
	})
	switch {
	case err != nil:
		return o.failed(verb, err)
	case found == 0:
		return fmt.Errorf("%w: %d of event %q", ErrNotParked, this.Seq, this.EventID)
	}
	return nil
}
