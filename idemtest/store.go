package idemtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// memory is a store in memory that can be stopped. Each method with an error has to ask up, because
// a method of the embedded store works in an outage.
type memory struct {
	*memstore.Store
	down atomic.Bool
}

func newMemory() *memory { return &memory{Store: memstore.New(memstore.Volatile())} }

var errDown = fmt.Errorf("idemtest: the store is down: %w", dedup.ErrUnavailable)

func (m *memory) set(down bool) { m.down.Store(down) }

// up returns an error while the store is down.
func (m *memory) up() error {
	if m.down.Load() {
		return errDown
	}
	return nil
}

// Claim implements [dedup.Store].
func (m *memory) Claim(
	ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request, answers []dedup.Answer,
) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Claim(ctx, t, lease, reqs, answers)
}

// Look implements [dedup.Looker].
func (m *memory) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Look(ctx, reqs, answers)
}

// Renew implements [dedup.Store].
func (m *memory) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Renew(ctx, lease, claims)
}

// Complete implements [dedup.Store].
func (m *memory) Complete(ctx context.Context, done []dedup.Completion) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Complete(ctx, done)
}

// Release implements [dedup.Store].
func (m *memory) Release(ctx context.Context, claims []dedup.Release) error {
	if err := m.up(); err != nil {
		return err
	}
	return m.Store.Release(ctx, claims)
}

// Check implements [dedup.Checker].
func (m *memory) Check(context.Context) ([]string, error) { return nil, m.up() }

// Ping implements [dedup.Checker].
func (m *memory) Ping(context.Context) error { return m.up() }
