package kgoidem

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/runner"
)

// TestClaim_Add: markers are not passed on, and no record is passed on twice. The end of the claim
// ends a wait for room.
func TestClaim_Add(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := newClaim(ctx, nil, partition{Topic: "t"}, runner.Place{Offset: 5, Committed: true})
		require.EqualValues(t, 5, c.InitialOffset())
		require.EqualValues(t, 5, c.HighWaterMarkOffset())
		c.add([]*kgo.Record{{Offset: 6}, {Offset: 8}, {Offset: 8}, {Offset: 4}})
		require.Len(t, c.records, 2)
		require.EqualValues(t, 9, c.HighWaterMarkOffset())
		var many []*kgo.Record
		for i := range int64(buffered + 1) {
			many = append(many, &kgo.Record{Offset: 9 + i})
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.add(many)
		}()
		synctest.Wait()
		require.Len(t, c.records, buffered)
		cancel()
		<-done
		fresh := newClaim(t.Context(), nil, partition{Topic: "t"}, runner.Place{Offset: 7, Initial: runner.OffsetOldest})
		require.EqualValues(t, runner.OffsetOldest, fresh.InitialOffset())
	})
}

// TestGate: a new claim waits for the poll that runs, and only for that one.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		require.NoError(t, g.pass(t.Context()), "no poll runs")
		poll := g.enter(t.Context())
		passed := make(chan error, 1)
		go func() { passed <- g.pass(t.Context()) }()
		synctest.Wait()
		require.Error(t, poll.Err(), "the poll returns at once")
		require.Empty(t, passed, "its records are not taken yet")
		g.leave()
		require.NoError(t, <-passed)

		g.enter(t.Context())
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errTest)
		require.ErrorIs(t, g.pass(ctx), errTest)
		g.leave()
		require.NoError(t, g.pass(t.Context()))
	})
}
