package consumer

import (
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
			var b backoff
			for _, ms := range []int64{500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000} {
				limit := time.Duration(ms) * time.Millisecond
				began := time.Now()
				require.NoError(t, b.wait(t.Context()))
				took := time.Since(began)
				require.GreaterOrEqual(t, took, limit/2)
				require.LessOrEqual(t, took, limit)
				seen[took] = true
			}
		}
		require.Greater(t, len(seen), 100, "drawn at random")
	})
}
