package cells

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every combination is a cell or has a reason, and each kind, step, store and fault has cells.
func TestTable(t *testing.T) {
	all := cells()
	require.GreaterOrEqual(t, len(all), 420)
	seen := make(map[combination]bool)
	parts := make(map[string]bool)
	for _, c := range all {
		require.False(t, seen[c], c)
		seen[c] = true
		for _, part := range []string{string(c.kind), string(c.step), string(c.store), string(c.fault)} {
			parts[part] = true
		}
	}
	require.Len(t, parts, len(kinds)-1+len(steps)+len(stores)+len(faults))
	require.NotContains(t, parts, string(viaHTTPTxRerun), "httpidem.NewTx refuses Rerun")
	for _, c := range product() {
		require.NotEqual(t, seen[c], reason(c) != "", c)
	}
	require.Len(t, product(), len(kinds)*len(steps)*len(stores)*len(faults))
}

// A transaction never repeats an effect, and a call never does without Rerun. With Rerun no outcome
// is unknown. An effect is missing only if the caller is told so.
func TestExpect(t *testing.T) {
	for _, c := range cells() {
		w := expect(c)
		require.NotEmpty(t, w.answers, c)
		require.LessOrEqual(t, w.least, w.most, c)
		if c.kind.inTx() {
			require.Equal(t, 1, w.least, c)
			require.Equal(t, 1, w.most, c)
		}
		if !c.kind.records() && c.kind != relays && !c.kind.reruns() || c.kind == careful {
			require.LessOrEqual(t, w.most, 1, c)
		}
		if c.kind.reruns() {
			require.NotContains(t, w.answers, unknown, c)
		}
		require.NotContains(t, append(expectFirst(c), w.answers...), wrong, c)
		if w.least == 0 {
			told := slices.DeleteFunc(slices.Clone(w.answers), func(a answer) bool { return a == noAnswer || a == result })
			require.NotEmpty(t, told, c)
		}
		if c.kind == relays { // a row is published, and again only if its settlement may be missing
			require.Equal(t, 1, w.least, c)
			require.False(t, w.most == 2 && (c.step == beforeClaim || c.step == beforeAnswer || c.step == afterEnd), c)
		} else if w.most == 2 {
			require.True(t, c.fault != restart && c.step.inWindow() || c.step == beforeEffect || c.fault == restart && c.step == afterClaim, c)
		}
	}
	require.Equal(t, want{1, 2, []answer{noAnswer}}, expect(combination{on, afterEffect, pg, kill}))
	require.Equal(t, want{0, 0, []answer{unknown}}, expect(combination{do, afterClaim, pg, kill}))
	require.Equal(t, want{2, 2, []answer{result}}, expect(combination{doRerun, afterEffect, pg, kill}))
	once := want{1, 1, []answer{result}}
	require.Equal(t, once, expect(combination{doTxRerun, afterEffect, pg, kill}))
	require.Equal(t, "1-2", want{1, 2, []answer{noAnswer}}.String())
	require.Equal(t, "0-1, result or unknown outcome", want{0, 1, []answer{result, unknown}}.String())
}

// A pattern that matches no cell is an error, and no run of zero cells.
func TestSelected(t *testing.T) {
	t.Setenv("IDEM_CELLS", "")
	t.Setenv("IDEM_CELLS_RESTART", "")
	for pattern, found := range map[string]bool{
		"^OnTx/pgstore/kill -9/": true, "^OnTx/pgstor/": false, "/server restarted/": false,
	} {
		some, err := selected(1, regexp.MustCompile(pattern))
		require.Equal(t, found, err == nil, pattern)
		require.Equal(t, found, len(some) > 0, pattern)
	}
	share, err := selected(1, nil)
	require.NoError(t, err)
	require.NotEmpty(t, share)
	require.Less(t, len(share), 130)
}

// The kinds with Rerun, and the restart of Kafka, take the slots of other cells in the share. So
// the share has some of them with each seed, and is not much larger than without them.
func TestShare(t *testing.T) {
	t.Setenv("IDEM_CELLS", "")
	t.Setenv("IDEM_CELLS_RESTART", "")
	slots, before := make(map[slot]bool), make(map[slot]bool)
	for _, c := range cells() {
		if c.fault == restart {
			continue
		}
		for _, p := range slotsOf(c) {
			slots[p] = true
			if !c.kind.reruns() && c.fault != kafkaRestart {
				before[p] = true
			}
		}
	}
	require.LessOrEqual(t, len(slots), len(before)+2) // a relay and memstore have no rebalance
	for seed := range uint64(20) {
		share, err := selected(seed, nil)
		require.NoError(t, err)
		require.LessOrEqual(t, len(share), len(slots))
		reruns, restarts := 0, 0
		for _, c := range share {
			if c.kind.reruns() {
				reruns++
			}
			if c.fault == kafkaRestart {
				restarts++
			}
		}
		require.NotZero(t, reruns)
		require.NotZero(t, restarts)
	}
}
