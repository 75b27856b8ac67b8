package outbox

import (
	"context"
	"errors"
	"time"
)

// Parked is a parked row. A person must retry or skip it.
type Parked struct {
	Row Row
	// At is when the row was parked, by the database's clock.
	At time.Time
	// Error is the error of the broker, at most 1 KiB.
	Error string
	// Behind counts the later rows of the topic and key that are blocked, up to 100,000.
	Behind int64
}

// ErrNotParked means that no parked row has the number and the event ID. The row may have been
// retried or skipped before, or the number now belongs to another event.
var ErrNotParked = errors.New("outbox: no such parked row")

// Operator is an ability of a [Store]: a person decides about rows that no broker takes. A row is
// meant only if both Seq and event ID are equal, as in a [Settlement]. Other errors are those of the
// database. Safe for concurrent use.
type Operator interface {
	// Parked returns at most limit parked rows, the lowest number first.
	Parked(ctx context.Context, limit int) ([]Parked, error)
	// Retry has the relays publish this parked row again, and the rows that are blocked behind it,
	// in their order. Rows that are also behind another parked row stay blocked. The error matches
	// [ErrNotParked], and nothing changes, if there is no such row.
	Retry(ctx context.Context, row RowID) error
	// Skip deletes this parked row, which is never published then. The rows that are blocked behind
	// it are published, except those behind another parked row. The error matches [ErrNotParked],
	// and nothing changes, if there is no such row.
	Skip(ctx context.Context, row RowID) error
}
