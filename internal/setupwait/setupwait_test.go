package setupwait_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/setupwait"
)

// TestPause: pauses double from 250 ms to 5 s, and the last one ends with the wait.
func TestPause(t *testing.T) {
	const ms, forever = time.Millisecond, time.Duration(math.MaxInt64)
	for name, c := range map[string]struct {
		wait   time.Duration
		looks  int             // that are made, at most
		pauses []time.Duration // between them
	}{
		"no wait":     {wait: 0, looks: 9},
		"shortest":    {wait: 1, looks: 9, pauses: []time.Duration{1}},
		"one pause":   {wait: 250 * ms, looks: 9, pauses: []time.Duration{250 * ms}},
		"the default": {wait: setupwait.Default, looks: 9, pauses: []time.Duration{250 * ms, 250 * ms, 500 * ms, 1000 * ms, 1000 * ms}},
		"20 s": {wait: 20 * time.Second, looks: 99, pauses: []time.Duration{
			250 * ms, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 5000 * ms, 5000 * ms, 2000 * ms,
		}},
		"no limit": {wait: forever, looks: 9, pauses: []time.Duration{
			250 * ms, 250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 5000 * ms, 5000 * ms, 5000 * ms,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var waited time.Duration
			var pauses []time.Duration
			for range c.looks {
				d, again := setupwait.Pause(waited, c.wait)
				if !again {
					require.Equal(t, c.wait, waited, "the last look is at the end of the wait")
					break
				}
				require.Positive(t, d)
				pauses, waited = append(pauses, d), waited+d
			}
			require.Equal(t, c.pauses, pauses)
		})
	}
	_, again := setupwait.Pause(time.Minute+1, time.Minute)
	require.False(t, again, "the look took longer than the rest of the wait")
}
