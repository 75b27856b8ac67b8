package reaping

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
)

// The stores bound and choose their work by these numbers.
const (
	// ChoreLimit bounds each statement or transaction of a reaper.
	ChoreLimit = time.Minute
	// StuckLimit bounds the search for stuck claims, which reads the whole table.
	StuckLimit = 2 * time.Second
	// StuckAfter is the time after the end of the lease when a claim counts as stuck.
	StuckAfter = time.Minute
	// SilentRows is the number of rows per table that the search for silent scopes reads.
	SilentRows = 1000
	// SilentAfter is how long a scope may have rows without progress on record.
	SilentAfter = 5 * time.Minute
)

// ErrElsewhere means that another reaper has the lease.
var ErrElsewhere = errors.New("another reaper is at work")

// Store is the work of a reaper on the tables of one store. A is the age of a scope there. A Loop
// calls one method at a time.
type Store[A any] interface {
	// Lease takes or renews the lease for a time from now on. It returns ErrElsewhere if another
	// reaper has the lease.
	Lease(ctx context.Context, mine dedup.Token, length time.Duration) error
	// Leave ends the lease, unless another reaper has it.
	Leave(ctx context.Context, mine dedup.Token) error
	// Ages reads the scopes with rows that may expire.
	Ages(ctx context.Context) ([]A, error)
	// Scope is the work on one scope, by Scopes.Work, with Loop.Between between two batches.
	Scope(ctx context.Context, a *A, events, claims func(rows int64)) error
	// Starts deletes a batch of counted starts. more is true if there may be others. The run asks for
	// no further batch after one without rows, since they may all be in use.
	Starts(ctx context.Context) (n int64, more bool, err error)
	// Silent returns scopes with rows that are never deleted. known are the results of Ages.
	Silent(ctx context.Context, known []A) ([]string, error)
	// Stuck counts stuck claims. The result is -1, without an error, if StuckLimit has ended the
	// search.
	Stuck(ctx context.Context) (int64, error)
	// TooSlow reports whether an error of Scope comes from the time limit of its work.
	TooSlow(err error) bool
}
