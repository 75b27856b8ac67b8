package otelidem_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Calls are counted by outcome, and are events of the caller's span.
func TestDo(t *testing.T) {
	tm := newTelemetry(t)
	guard := dedup.NewGuard(memstore.New(), dedup.GuardConfig{Observe: tm.ObserveDo})
	defer guard.Close()
	ctx, span := tm.tracer.Start(t.Context(), "job")
	key := dedup.Key{Scope: "billing", Type: "charge", ID: "4711"}
	charge := func(context.Context) (int, error) { return 7, nil }
	for range 3 {
		_, _, err := dedup.Do(ctx, guard, key, charge)
		require.NoError(t, err)
	}
	_, _, err := dedup.Do(ctx, guard, dedup.Key{Scope: "billing", ID: "other"},
		func(context.Context) (int, error) { return 0, errBoom })
	require.ErrorIs(t, err, errBoom)
	span.End()
	for outcome, want := range map[string]int{"ran": 1, "replayed": 2, "failed": 1} {
		require.Equal(t, want, tm.sum("idem.do.calls", "idem.do.outcome="+outcome,
			"idem.transactional=false"), outcome)
		require.EqualValues(t, want, tm.count("idem.do.wait.duration", "idem.do.outcome="+outcome),
			outcome)
	}
	events := tm.ended("job")[0].Events
	require.Len(t, events, 4)
	require.Equal(t, "idem.do", events[1].Name)
	require.Equal(t, ":billing:charge:4711", attr(events[1].Attributes, "idem.key"))
	require.Equal(t, "replayed", attr(events[1].Attributes, "idem.do.outcome"))
	tm.ObserveDo(context.Background(), dedup.DoEvent{Tx: true, Outcome: dedup.DoPanicked})
	require.Equal(t, 1, tm.sum("idem.do.calls", "idem.transactional=true"))
	tm.requireListed()
}
