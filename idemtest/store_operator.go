package idemtest

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file has the calls of the store for people and tools.

// Inspect implements [dedup.Operator].
func (m *memory) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	if err := m.up(); err != nil {
		return nil, err
	}
	return m.Store.Inspect(ctx, keys...)
}

// Forget implements [dedup.Operator].
func (m *memory) Forget(ctx context.Context, key dedup.Key) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Forget(ctx, key)
}

// Discard implements [dedup.Operator].
func (m *memory) Discard(
	ctx context.Context, key dedup.Key, retention time.Duration, reason string,
) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Discard(ctx, key, retention, reason)
}

// Reopen implements [dedup.Operator].
func (m *memory) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	if err := m.up(); err != nil {
		return dedup.Position{}, err
	}
	return m.Store.Reopen(ctx, key)
}

// Import implements [dedup.Operator].
func (m *memory) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	if err := m.up(); err != nil {
		return 0, err
	}
	return m.Store.Import(ctx, events)
}

// List implements [dedup.Lister].
func (m *memory) List(
	ctx context.Context, f dedup.Filter, limit int, yield func(dedup.Record) bool,
) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.List(ctx, f, limit, yield)
}

// Find implements [dedup.Lister].
func (m *memory) Find(ctx context.Context, scope, id string) ([]dedup.Record, error) {
	if err := m.up(); err != nil {
		return nil, err
	}
	return m.Store.Find(ctx, scope, id)
}

// NoteConflict implements [dedup.ConflictNoter].
func (m *memory) NoteConflict(ctx context.Context, key dedup.Key, copyOf dedup.Origin) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.NoteConflict(ctx, key, copyOf)
}

// Conflicts implements [dedup.ConflictNoter].
func (m *memory) Conflicts(
	ctx context.Context, key dedup.Key, limit int,
) ([]dedup.Origin, error) {
	if err := m.up(); err != nil {
		return nil, err
	}
	return m.Store.Conflicts(ctx, key, limit)
}
