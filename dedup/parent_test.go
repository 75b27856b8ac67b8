package dedup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Rule 23: the context of a handler has the key of the event, and so have contexts derived from it.
// The innermost key counts, and all other values of the context stay.
func TestParent_Rule23(t *testing.T) {
	type other struct{}
	none := context.WithValue(t.Context(), other{}, "kept")
	got, ok := dedup.ParentFrom(none)
	require.False(t, ok)
	require.Zero(t, got)
	outer, inner := dedup.Key{Scope: "s", Type: "t", ID: "outer"}, dedup.Key{ID: "inner"}
	ctx, cancel := context.WithCancelCause(dedup.WithParent(none, outer))
	ctx, stop := context.WithTimeout(ctx, time.Hour)
	defer stop()
	got, ok = dedup.ParentFrom(ctx)
	require.True(t, ok)
	require.Equal(t, outer, got)
	require.Equal(t, "kept", ctx.Value(other{}))
	within := dedup.WithParent(ctx, inner)
	got, _ = dedup.ParentFrom(within)
	require.Equal(t, inner, got)
	got, ok = dedup.ParentFrom(dedup.WithParent(within, dedup.Key{}))
	require.True(t, ok, "several are handled at once")
	require.Zero(t, got)
	got, _ = dedup.ParentFrom(ctx)
	require.Equal(t, outer, got)
	why := errors.New("why")
	cancel(why)
	<-within.Done()
	require.Equal(t, why, context.Cause(within))
	got, _ = dedup.ParentFrom(context.WithoutCancel(within))
	require.Equal(t, inner, got)
}

// WithParent is on the way of every event: it allocates once.
func TestParentAllocatesOnce(t *testing.T) {
	ctx, key := t.Context(), dedup.Key{Scope: "s", Type: "t", ID: "id"}
	away := make(chan context.Context, 1) // contexts that go through it are on the heap
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		away <- dedup.WithParent(ctx, key)
		_, _ = dedup.ParentFrom(<-away)
	}), 1.0)
}

// Rule 23: the functions of Do and DoTx know the key that they were called with, also where another version of their result is kept.
func TestDoSaysTheParent_Rule23(t *testing.T) {
	key := dedup.Key{Scope: "s", Type: "t", ID: "id"}
	guard := dedup.NewGuard(memstore.New(), dedup.GuardConfig{})
	defer guard.Close()
	books := dedup.NewGuard(newBooks(), dedup.GuardConfig{})
	defer books.Close()
	says := func(ctx context.Context) (string, error) {
		parent, ok := dedup.ParentFrom(ctx)
		require.True(t, ok)
		require.Equal(t, key, parent)
		return "ran", nil
	}
	outer := dedup.WithParent(t.Context(), dedup.Key{ID: "outer"})
	for version := range uint32(3) {
		_, replayed, err := dedup.Do(outer, guard, key, says, dedup.Schema(version+1))
		require.NoError(t, err)
		require.False(t, replayed)
		_, replayed, err = dedup.DoTx(outer, books, key, time.Minute, func(ctx context.Context, _ *page) (string, error) {
			return says(ctx)
		}, dedup.Schema(version+1))
		require.NoError(t, err)
		require.False(t, replayed)
	}
}

func BenchmarkWithParent(b *testing.B) {
	ctx, key := b.Context(), dedup.Key{Scope: "s", Type: "t", ID: "id"}
	away := make(chan context.Context, 1)
	b.ReportAllocs()
	for b.Loop() {
		away <- dedup.WithParent(ctx, key)
		<-away
	}
}
