package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A pause doubles up to its limit, and never becomes short again.
func TestCeiling(t *testing.T) {
	const low, high = 100 * time.Millisecond, 2 * time.Second
	for n, want := range []time.Duration{low, low, 2 * low, 4 * low, 8 * low, 16 * low, high, high} {
		require.Equal(t, want, ceiling(low, high, n), n)
	}
	for n := 7; n <= 64; n++ { // a minute, doubled 28 times, is no longer an int64
		require.Equal(t, time.Hour, ceiling(time.Minute, time.Hour, n), n)
	}
	require.Equal(t, 64*time.Minute, ceiling(time.Minute, 64*time.Minute, 7))
	require.Equal(t, time.Hour, ceiling(time.Hour, time.Hour, 1))
	const longest = time.Duration(1<<63 - 1)
	for n := 1; n < 100; n++ {
		require.Positive(t, ceiling(1, longest, n), n)
	}
}
