package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConflict_LogIsBounded(t *testing.T) {
	var l conflictLog
	now := time.Unix(0, 0)
	leftOut, ok := l.admit(now)
	require.True(t, ok)
	require.Zero(t, leftOut)
	for range 3 {
		_, ok = l.admit(now.Add(logEvery - 1))
		require.False(t, ok)
	}
	leftOut, ok = l.admit(now.Add(logEvery))
	require.True(t, ok)
	require.Equal(t, 3, leftOut)
}
