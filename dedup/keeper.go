package dedup

import (
	"context"
	"time"
)

// PLACEHOLDER so that others compile: to be replaced as a whole by the real Keeper.

// Keeper holds claims for many.
type Keeper struct {
	s     Store
	lease time.Duration
}

// NewKeeper returns a Keeper.
func NewKeeper(s Store, lease time.Duration) *Keeper { return &Keeper{s, lease} }

// Lease returns the lease.
func (k *Keeper) Lease() time.Duration { return k.lease }

// Keep keeps.
func (k *Keeper) Keep(ctx context.Context, _ Claim, _ time.Time) (context.Context, func()) {
	held, cancel := context.WithCancelCause(ctx)
	return held, func() { cancel(nil) }
}

// Complete completes.
func (k *Keeper) Complete(ctx context.Context, done Completion) error {
	return k.s.Complete(ctx, []Completion{done})
}

// Close closes.
func (k *Keeper) Close() {}
