package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A reaper begins behind the rows that stay, for an hour from the first window that was passed.
func TestFloors(t *testing.T) {
	var f Floors
	begin := func(scope string, table int, now time.Time) time.Time {
		return f.Begin(scope, table, minute(0), now)
	}
	require.Equal(t, minute(0), begin("g", 0, minute(100)))
	f.Pass("g", 0, minute(3), minute(100))
	f.Pass("g", 0, minute(5), minute(130))
	require.Equal(t, minute(5), begin("g", 0, minute(159)))
	require.Equal(t, minute(0), begin("g", 1, minute(159)), "another table")
	require.Equal(t, minute(0), begin("h", 0, minute(159)), "another scope")
	require.Equal(t, minute(0), begin("g", 0, minute(160)), "an hour is over")
	f.Pass("g", 0, minute(7), minute(161))
	require.Equal(t, minute(7), begin("g", 0, minute(220)))
	require.Equal(t, minute(0), begin("g", 0, minute(221)))
}
