package pgoutbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/outbox"
)

// Parked is a row that a person must decide about.
type Parked struct {
	Row outbox.Row
	// At is when it was parked, by the database's clock, and Error why.
	At    time.Time
	Error string
	// Behind is how many later rows of its aggregate are blocked; counting stops at 100,000.
	Behind int64
}

// ErrNotParked says that there is no such parked row.
var ErrNotParked = errors.New("pgoutbox: no such parked row")

// Parked returns the parked rows, the oldest first, at most limit.
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

// Retry lets the parked row with this number be published again, and what is blocked behind it, in their order. Rows that are also
// behind another parked row stay blocked. The error matches [ErrNotParked] if there is no such row.
func (o *Outbox) Retry(ctx context.Context, seq int64) error {
	return o.endParking(ctx, "retry", seq, func(q *statements) string { return q.parkedRetry })
}

// Skip drops the parked row with this number for good: it will never be published. What is blocked behind it is, but for rows that are
// also behind another parked row. The error matches [ErrNotParked] if there is no such row.
func (o *Outbox) Skip(ctx context.Context, seq int64) error {
	return o.endParking(ctx, "skip", seq, func(q *statements) string { return q.skipRow })
}

func (o *Outbox) endParking(ctx context.Context, verb string, seq int64, text func(*statements) string) error {
	var found int64
	err := o.atomic(ctx, func(q *statements, b *pgx.Batch) {
		b.Queue(q.parkedLock, seq)
		b.Queue(text(q), seq).QueryRow(func(row pgx.Row) error { return row.Scan(&found) })
	})
	switch {
	case err != nil:
		return o.failed(verb, err)
	case found == 0:
		return fmt.Errorf("%w: %d", ErrNotParked, seq)
	}
	return nil
}
