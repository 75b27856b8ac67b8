package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBackoff_Lengths_K18_K42: pauses double from 0.5 s to 10 s. Each is random, between half of
// its limit and the whole, so that members which restart together do not return together.
func TestBackoff_Lengths_K18_K42(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		for range 20 {
			var b Backoff
			for _, ms := range []int64{500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000} {
				limit := time.Duration(ms) * time.Millisecond
				began := time.Now()
				require.NoError(t, b.Wait(t.Context()))
				took := time.Since(began)
				require.GreaterOrEqual(t, took, limit/2)
				require.LessOrEqual(t, took, limit)
				seen[took] = true
			}
		}
		require.Greater(t, len(seen), 100, "drawn at random")
	})
}

func TestBackoff_K18(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	var b Backoff
	for range 100 {
		require.ErrorIs(t, b.Wait(ctx), errTest)
	}
	require.Equal(t, 100, b.Tries)
}

var errTest = errors.New("test")
