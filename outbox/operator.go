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

// ErrNotParked means that no parked row has the number. The row may have been retried or skipped
// before.
var ErrNotParked = errors.New("outbox: no such parked row")

// Operator is an ability of a [Store]: a person decides about rows that no broker takes. Other
// errors are those of the database. Safe for concurrent use.
type Operator interface {
	// Parked returns at most limit parked rows, the lowest number first.
	Parked(ctx context.Context, limit int) ([]Parked, error)
	// Retry has the relays publish the parked row with this number again, and the rows that are
	// blocked behind it, in their order. Rows that are also behind another parked row stay blocked.
	// The error matches [ErrNotParked] if there is no such row.
	Retry(ctx context.Context, seq int64) error
	// Skip deletes the parked row with this number, which is never published then. The rows that
	// are blocked behind it are published, except those behind another parked row. The error
	// matches [ErrNotParked] if there is no such row.
	Skip(ctx context.Context, seq int64) error
}
