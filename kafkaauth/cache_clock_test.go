package kafkaauth

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// shift moves the two clocks of t apart, as a suspended machine does: the monotonic clock stands still. A Time cannot
// be made so by its methods: the monotonic reading is its second word.
func shift(t time.Time, wall, monotonic time.Duration) time.Time {
	t = t.Add(wall)
	(*[2]int64)(unsafe.Pointer(&t))[1] += int64(monotonic - wall)
	return t
}

// Rule 49: a token ends by the clock that is further on.
func TestTokenEndsByTheClockThatIsFurtherOn(t *testing.T) {
	now := time.Now()
	require.Equal(t, 20*time.Second, shift(now, time.Hour, 20*time.Second).Sub(now), "the test's own trick")
	c := &cache{}
	c.keep(Token{Value: "a", Expires: now.Add(time.Hour)}, now) // used for 5 s less
	for _, at := range []struct {
		wall, monotonic time.Duration
		good            bool
	}{
		{0, 0, true},
		{59 * time.Minute, 59 * time.Minute, true},
		{time.Hour, time.Hour, false},
		{2 * time.Hour, time.Second, false}, // suspended
		{-time.Hour, 2 * time.Hour, false},  // set back
		{-time.Hour, time.Second, true},     // set back, and the token lives
	} {
		require.Equal(t, at.good, c.good(shift(now, at.wall, at.monotonic)), "wall %v, monotonic %v", at.wall, at.monotonic)
	}
}

// Rule 49: after a suspend the next caller gets a new token, and no pause after a failure lasts longer than by the wall
// clock.
func TestCached_AfterASuspend(t *testing.T) {
	calls := 0
	c := &cache{source: func(context.Context) (Token, error) {
		calls++
		return Token{Value: "new", Expires: time.Now().Add(time.Hour)}, nil
	}}
	before := shift(time.Now(), -2*time.Hour, -time.Second) // the machine was suspended for 2 h
	c.keep(Token{Value: "old", Expires: before.Add(time.Hour)}, before)
	require.Equal(t, "new", value(t, c.get))
	require.Equal(t, 1, calls)

	c.token, c.err, c.retry = Token{}, errTest, before.Add(10*time.Second)
	require.Equal(t, "new", value(t, c.get))
	c.refresh, c.retry = before.Add(48*time.Minute), time.Time{} // while the token is good for longer
	require.Equal(t, "new", value(t, c.get))
	require.Equal(t, 3, calls)
}
