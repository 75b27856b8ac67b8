package decision

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReaperLease(t *testing.T) {
	require.Equal(t, "reaper", ReaperLease(nil))
	http := ReaperLease([]string{"http"})
	require.NotEqual(t, ReaperLease(nil), http)
	require.NotEqual(t, http, ReaperLease([]string{"http", "replay"}))
	require.NotEqual(t, ReaperLease([]string{"a", "b"}), ReaperLease([]string{"a b"}))
	require.Equal(t, ReaperLease([]string{"a", "b"}), ReaperLease([]string{"b", "a", "b"}),
		"order and repetition do not count")
	require.LessOrEqual(t, len(http), 100)
}
