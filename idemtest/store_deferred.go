package idemtest

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
)

// This file has the calls of the store for events that wait there.

// Defer implements [dedup.Deferrer].
func (m *memory) Defer(
	ctx context.Context, at dedup.DeferredPartition, events []dedup.Deferred,
) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Defer(ctx, at, events)
}

// Queues implements [dedup.Deferrer].
func (m *memory) Queues(
	ctx context.Context, at dedup.DeferredPartition, after string, limit int,
) ([]dedup.Queue, error) {
	if err := m.up(); err != nil {
		return nil, err
	}
	return m.Store.Queues(ctx, at, after, limit)
}

// Due implements [dedup.Deferrer].
func (m *memory) Due(
	ctx context.Context, at dedup.DeferredPartition, limit int,
) (heads []dedup.Deferred, next time.Duration, err error) {
	if err := m.up(); err != nil {
		return nil, 0, err
	}
	return m.Store.Due(ctx, at, limit)
}

// First implements [dedup.Deferrer].
func (m *memory) First(
	ctx context.Context, at dedup.DeferredPartition, queue string, limit int,
) ([]dedup.Deferred, error) {
	if err := m.up(); err != nil {
		return nil, err
	}
	return m.Store.First(ctx, at, queue, limit)
}

// Postpone implements [dedup.Deferrer].
func (m *memory) Postpone(
	ctx context.Context, at dedup.DeferredPartition, e dedup.Deferred,
) (moved bool, err error) {
	if err := m.up(); err != nil {
		return false, err
	}
	return m.Store.Postpone(ctx, at, e)
}

// Remove implements [dedup.Deferrer].
func (m *memory) Remove(
	ctx context.Context, at dedup.DeferredPartition, queue string, events ...dedup.Deferred,
) (empty bool, err error) {
	if err := m.up(); err != nil {
		return false, err
	}
	return m.Store.Remove(ctx, at, queue, events...)
}

// Delay implements [dedup.Deferrer].
func (m *memory) Delay(
	ctx context.Context, at dedup.DeferredPartition, wait time.Duration, queues ...string,
) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Delay(ctx, at, wait, queues...)
}

// DeferredOf implements [dedup.Deferrer].
func (m *memory) DeferredOf(
	ctx context.Context, scope, topic string, keys ...dedup.Key,
) ([]dedup.Deferred, error) {
	if err := m.up(); err != nil {
		return nil, err
	}
	return m.Store.DeferredOf(ctx, scope, topic, keys...)
}

// FindDeferred implements [dedup.Deferrer].
func (m *memory) FindDeferred(
	ctx context.Context, scope, topic string, key dedup.Key,
) (at dedup.DeferredPartition, e dedup.Deferred, ok bool, err error) {
	if err := m.up(); err != nil {
		return at, e, false, err
	}
	return m.Store.FindDeferred(ctx, scope, topic, key)
}
