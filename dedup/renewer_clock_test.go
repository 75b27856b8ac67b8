package dedup

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// shift moves the two clocks of t apart, as a suspended machine (monotonic stands still) or a stepped clock does. A
// Time cannot be made so by its methods: the monotonic reading is its second word.
func shift(t time.Time, wall, monotonic time.Duration) time.Time {
	t = t.Add(wall)
	(*[2]int64)(unsafe.Pointer(&t))[1] += int64(monotonic - wall)
	return t
}

// Rule 49, R-18: the clock that is further on decides.
func TestLeaseIsOverByTheClockThatIsFurtherOn(t *testing.T) {
	now := time.Now()
	end := now.Add(30 * time.Second)
	require.Equal(t, 20*time.Second, shift(now, time.Hour, 20*time.Second).Sub(now), "the test's own trick")
	for _, c := range []struct {
		wall, monotonic time.Duration
		over            bool
	}{
		{0, 0, false},
		{29 * time.Second, 29 * time.Second, false},
		{30 * time.Second, 30 * time.Second, true},
		{time.Hour, time.Second, true},   // suspended
		{-time.Hour, time.Minute, true},  // set back
		{-time.Hour, time.Second, false}, // set back, and the lease lives
		{time.Second, 31 * time.Second, true},
	} {
		require.Equal(t, c.over, passed(end, shift(now, c.wall, c.monotonic)), "wall %v, monotonic %v", c.wall, c.monotonic)
	}
}
