package runner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTail(t *testing.T) {
	now := time.Now()
	l := newTail()
	require.False(t, l.caughtUp(0, now))
	ask := func(next int64) (offset int64) {
		offset, wanted := l.Ask(next, now)
		require.True(t, wanted)
		return offset
	}
	require.EqualValues(t, 10, ask(10))
	require.True(t, l.Learn(now, 10, Look{Clear: 12}), "ask on")
	require.False(t, l.caughtUp(10, now))
	require.EqualValues(t, 12, ask(10), "not again from the beginning")
	require.False(t, l.Learn(now, 10, Look{Clear: 11, End: true}), "an answer that was overtaken")
	require.False(t, l.caughtUp(10, now))
	require.False(t, l.Learn(now, 12, Look{Clear: 13, End: true}))
	require.True(t, l.caughtUp(10, now))
	require.True(t, l.caughtUp(20, now), "and what came later is consumed as well")
	require.False(t, l.caughtUp(9, now), "rewound")
	require.False(t, l.caughtUp(10, now.Add(freshEnd)), "too old")

	now = now.Add(time.Second)
	require.EqualValues(t, 13, ask(10))
	require.False(t, l.Learn(now, 13, Look{Clear: 15, Visible: true}))
	require.False(t, l.caughtUp(10, now))
	for next, want := range map[int64]bool{9: false, 10: true, 13: true, 15: true, 16: false} {
		require.Equal(t, want, l.shows(next), next)
	}
	_, wanted := l.Ask(10, now.Add(visibleFor-1))
	require.False(t, wanted, "it is known to wait")
	now = now.Add(visibleFor)
	require.EqualValues(t, 15, ask(12))
	require.EqualValues(t, 16, ask(16), "it was consumed")
	require.False(t, l.shows(16))
	require.EqualValues(t, 9, ask(9), "rewound")
	require.False(t, l.caughtUp(16, now))
}

// TestTail_Forget: a forgotten end is asked for again.
func TestTail_Forget(t *testing.T) {
	now := time.Now()
	l := newTail()
	_, _ = l.Ask(10, now)
	require.False(t, l.Learn(now, 10, Look{Clear: 10, End: true}))
	require.True(t, l.caughtUp(10, now))
	l.Forget()
	require.False(t, l.caughtUp(10, now))
	offset, wanted := l.Ask(10, now)
	require.True(t, wanted)
	require.EqualValues(t, 10, offset)
}
