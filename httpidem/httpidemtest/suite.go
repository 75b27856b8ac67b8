// Package httpidemtest tests package httpidem on a store. A store is suitable for HTTP requests
// if [Run] succeeds, and a transactional one if [RunTx] succeeds as well. The suite uses HTTP
// only and counts the runs of handlers. So your own store is tested like those of this module:
//
//	func TestHTTP(t *testing.T) {
//		httpidemtest.Run(t, httpidemtest.Harness{NewStore: newStore})
//	}
//
// Package storetest tests the conformance of the store itself.
package httpidemtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

// Harness creates stores and sets the size of the tests.
type Harness struct {
	// NewStore returns an empty store, apart from all others, and registers the clean-up with
	// t.Cleanup. Required.
	NewStore func(t testing.TB) dedup.Store
	// Peer returns a second client of the store of s, as in another process. Nil: s is also the
	// peer.
	Peer func(t testing.TB, s dedup.Store) dedup.Store
	// Callers is the number of callers that send one key at the same time; default 200. Keys is the
	// number of such keys; default 500.
	Callers, Keys int
	// AtOnce is the number of keys with callers at the same time; default 4. A transactional store
	// needs as many connections, and some more.
	AtOnce int
	// HangUps is the number of clients that hang up at each of the tested moments; default 10.
	HangUps int
	// Lease is the short lease of the test in which a lease ends; default 500 ms.
	Lease time.Duration
	// Blind means that the store has no look-up ([dedup.Looker], or [dedup.TxLooker] in RunTx).
	// Default: false.
	Blind bool
}

// TxHarness is a Harness for stores with transactions of the type Tx.
type TxHarness[Tx any] struct {
	Harness
	// Effect writes an effect in a transaction, which Effects can count. Required.
	Effect func(ctx context.Context, tx Tx, id string) error
	// Effects returns how often the effect id was committed to the database of s. Required.
	Effects func(t testing.TB, s dedup.Store, id string) int
}

// Run tests [httpidem.New] on the stores of h.
func Run(t *testing.T, h Harness) {
	run(t, variant{
		Harness: h.ready(t), open: httpidem.New, hook: hookClaims,
		effect: func(_ context.Context, k *kit, id string) error {
			k.count(k.effects, id)
			return nil
		},
		written: func(k *kit, id string) int { return k.counted(k.effects, id) },
		looks:   func(s dedup.Store) bool { _, ok := s.(dedup.Looker); return ok },
	})
}

// RunTx tests [httpidem.NewTx] on the stores of h.
func RunTx[Tx any](t *testing.T, h TxHarness[Tx]) {
	require.NotNil(t, h.Effect, "TxHarness.Effect is required")
	require.NotNil(t, h.Effects, "TxHarness.Effects is required")
	run(t, variant{
		Harness: h.ready(t), tx: true, open: httpidem.NewTx[Tx], hook: hookTx[Tx],
		effect: func(ctx context.Context, _ *kit, id string) error {
			tx, ok := httpidem.TxFrom[Tx](ctx)
			if !ok {
				return errNoTx
			}
			return h.Effect(ctx, tx, id)
		},
		written: func(k *kit, id string) int { return h.Effects(k, k.store, id) },
		looks:   func(s dedup.Store) bool { _, ok := s.(dedup.TxLooker); return ok },
	})
}

func (h Harness) ready(t *testing.T) Harness {
	require.NotNil(t, h.NewStore, "Harness.NewStore is required")
	for _, n := range []struct {
		value *int
		usual int
	}{{&h.Callers, 200}, {&h.Keys, 500}, {&h.AtOnce, 4}, {&h.HangUps, 10}} {
		if *n.value <= 0 {
			*n.value = n.usual
		}
	}
	if h.Lease <= 0 {
		h.Lease = 500 * time.Millisecond
	}
	if h.Peer == nil {
		h.Peer = func(_ testing.TB, s dedup.Store) dedup.Store { return s }
	}
	return h
}

// variant is New or NewTx over a store.
type variant struct {
	Harness
	tx      bool
	open    func(httpidem.Config) (*httpidem.Middleware, error)
	hook    func(s dedup.Store, at hook) dedup.Store
	effect  func(ctx context.Context, k *kit, id string) error // of a handler
	written func(k *kit, id string) int                        // number of effects
	looks   func(dedup.Store) bool
}

// ways selects the variants of a case.
type ways uint8

const (
	both ways = iota
	claimed
	transactional
)

type testCase struct {
	name string
	ways ways
	run  func(k *kit)
}

func run(t *testing.T, d variant) {
	for _, c := range slices.Concat(massCases, replayCases, fateCases, brokenCases, accessCases,
		processCases) {
		if c.ways == both || (c.ways == transactional) == d.tx {
			t.Run(c.name, func(t *testing.T) { c.run(newKit(t, d)) })
		}
	}
}
