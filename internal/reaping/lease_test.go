package reaping

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLease(t *testing.T) {
	require.Equal(t, "reaper", Lease(nil))
	http := Lease([]string{"http"})
	require.NotEqual(t, Lease(nil), http)
	require.NotEqual(t, http, Lease([]string{"http", "replay"}))
	require.NotEqual(t, Lease([]string{"a", "b"}), Lease([]string{"a b"}))
	require.Equal(t, Lease([]string{"a", "b"}), Lease([]string{"b", "a", "b"}), "order and repetition do not count")
	require.LessOrEqual(t, len(http), 100)
}
