package ops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Dead letters that were there yesterday do not keep the start page amber for ever; new ones do.
func TestStart_OldDeadLettersAreCalm(t *testing.T) {
	var w deadLetterWatch
	now := time.Now()
	level := func(n int64) string {
		s := &startView{}
		s.glanceDeadLetters(n, 1, w.quiet(n, now))
		require.Len(t, s.Alerts, 1)
		return s.Alerts[0].Level
	}
	require.Equal(t, "warn", level(5), "nobody knows how old they are")
	now = now.Add(59 * time.Minute)
	require.Equal(t, "warn", level(5))
	now = now.Add(2 * time.Minute)
	require.Equal(t, "info", level(5))
	require.Equal(t, "warn", level(6))
	now = now.Add(2 * time.Hour)
	require.Equal(t, "info", level(3), "some were purged")
	require.Equal(t, "warn", level(4))
}
