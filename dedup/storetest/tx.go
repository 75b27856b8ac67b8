package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// RunTx tests that the stores of h keep the contract of [dedup.TxStore] and of every [Ability]
// that is not missing. A transactional store must succeed in [Run] too.
func RunTx[Tx any](t *testing.T, h TxHarness[Tx]) {
	require.NotNil(t, h.New, "TxHarness.New is required")
	require.NotNil(t, h.Exec, "TxHarness.Exec is required")
	require.NotNil(t, h.Count, "TxHarness.Count is required")
	lacks := func(a Ability) bool {
		return lacking(h.Missing, a) || (a == sql || a == TxAborts) && h.Raw == nil || a == slowSQL &&
			(h.Raw == nil || h.Slow == "") ||
			a == horizon && h.Horizon == nil
	}
	for _, c := range slices.Concat(txClaimTests[Tx](), txFaultTests[Tx](), txGroupTests[Tx](),
		txHorizonTests[Tx](), txAbilityTests[Tx](), txNoWaitTests[Tx](), txSavepointTests[Tx](),
		txLookTests[Tx](), txWorkTests[Tx](), txOperatorTests[Tx]()) {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" && lacks(c.needs) {
				t.Skipf("TxHarness.Missing has %q", c.needs)
			}
			if !c.alone {
				t.Parallel()
			}
			c.run(&txKit[Tx]{TB: t, h: h, s: h.New(t), ctx: t.Context()})
		})
	}
}
