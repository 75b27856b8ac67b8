package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimeline(t *testing.T) {
	zero := time.Unix(1_000_000_000, 0)
	note := func(l *timeline, offset int64, when time.Time) {
		l.note(offset, when)
	}
	l := newTimeline()
	require.Zero(t, l.before(100))
	note(l, 3, time.Time{})
	note(l, 4, time.UnixMilli(-1))
	require.Zero(t, l.before(100), "a record without a time")
	note(l, 5, zero)
	require.Zero(t, l.before(5), "below the watermark only")
	require.Equal(t, zero, l.before(6))
	for i := range int64(99) { // of one moment: one sample in a hundred
		note(l, 6+i, zero.Add(time.Millisecond))
	}
	require.Equal(t, zero, l.before(1000))
	note(l, 105, zero.Add(2*time.Millisecond))
	require.Equal(t, zero.Add(2*time.Millisecond), l.before(1000))
	note(l, 106, zero.Add(-time.Hour)) // a producer's clock goes back
	require.Equal(t, zero.Add(-time.Hour), l.before(1000))

	// However many there are, a time is never that of a record at or above the watermark.
	l = newTimeline()
	for i := range int64(10_000) {
		note(l, i, zero.Add(time.Duration(i)*time.Minute))
	}
	require.LessOrEqual(t, len(l.samples), maxSamples)
	for next := int64(1); next < 10_000; next += 97 {
		got := l.before(next)
		require.True(t, got.IsZero() || got.Before(zero.Add(time.Duration(next)*time.Minute)))
	}
	require.Equal(t, zero.Add(9999*time.Minute), l.before(10_000))
}
