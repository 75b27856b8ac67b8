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

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

// TxHarness is a Harness for stores with transactions of the type Tx.
type TxHarness[Tx any] struct {
	Harness
	// Effect writes an effect in a transaction, which Effects can count. Required.
	Effect func(ctx context.Context, tx Tx, id string) error
	// Effects returns how often the effect id was committed to the database of s. Required.
	Effects func(t testing.TB, s dedup.Store, id string) int
}

// Run tests [httpidem.New] on the stores of h.
func Run(t *testing.T, h Harness) { runCases(t, underClaims(h.ready(t))) }

// underClaims returns the variant of [Run].
func underClaims(h Harness) variant {
	return variant{
		Harness: h, open: httpidem.New, hook: hookClaims,
		effect: func(_ context.Context, k *kit, id string) error {
			k.count(k.effects, id)
			return nil
		},
		written: func(k *kit, id string) int { return k.counted(k.effects, id) },
		looks:   func(s dedup.Store) bool { _, ok := s.(dedup.Looker); return ok },
	}
}

// RunTx tests [httpidem.NewTx] on the stores of h.
func RunTx[Tx any](t *testing.T, h TxHarness[Tx]) {
	require.NotNil(t, h.Effect, "TxHarness.Effect is required")
	require.NotNil(t, h.Effects, "TxHarness.Effects is required")
	runCases(t, variant{
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

func runCases(t *testing.T, d variant) {
	for _, c := range allCases() {
		if c.ways == both || (c.ways == transactional) == d.tx {
			t.Run(c.name, func(t *testing.T) { c.run(newKit(t, d)) })
		}
	}
}

func allCases() []testCase {
	return slices.Concat(massCases, replayCases, fateCases, brokenCases, accessCases, processCases)
}
