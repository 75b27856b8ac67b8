package sqlstore

import (
	"context"
	"time"

	"github.com/idem-go/idem/internal/reaping"
)

// Move moves the horizon of a scope, and returns it.
func (r *Reaper) Move(ctx context.Context, scope string, before, cutoff time.Time) (time.Time, error) {
	a := reaping.Age{Scope: scope}
	err := r.rows.Move(ctx, &a, before, cutoff)
	return a.Horizon, err
}

// SetHorizonRows sets how many rows of a table a horizon step reads.
func (r *Reaper) SetHorizonRows(n int) { r.rows.scopes.Limit = n }

// SetWindowRows sets how many rows of a table one statement reads.
func (r *Reaper) SetWindowRows(n int) { r.rows.scopes.Window = n }
