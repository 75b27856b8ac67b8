package throttle_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/throttle"
)

const (
	closed   = throttle.BreakerClosed
	open     = throttle.BreakerOpen
	halfOpen = throttle.BreakerHalfOpen
	good     = throttle.RunSucceeded
	down     = throttle.RunUnavailable
	unsure   = throttle.RunUnsure
)

// Each row is a list of steps of a breaker that opens after three runs, for ten seconds.
func TestBreaker(t *testing.T) {
	type step struct {
		at      time.Duration
		end     throttle.RunEnd // of a run, if begin is not set
		begin   bool
		refused bool // by begin
		state   throttle.BreakerState
	}
	run := func(at time.Duration, end throttle.RunEnd, state throttle.BreakerState) step {
		return step{at: at, end: end, state: state}
	}
	ask := func(at time.Duration, state throttle.BreakerState) step {
		return step{at: at, begin: true, state: state}
	}
	refused := func(at time.Duration, state throttle.BreakerState) step {
		return step{at: at, begin: true, refused: true, state: state}
	}
	const s = time.Second
	opening := []step{run(0, down, closed), run(0, down, closed), run(1*s, down, open)}
	for name, steps := range map[string][]step{
		"three in a row open it":           append(opening, refused(1*s, open), refused(10999*time.Millisecond, open)),
		"a success between them":           {run(0, down, closed), run(0, down, closed), run(0, good, closed), run(0, down, closed), run(0, down, closed)},
		"other failures say nothing":       {run(0, down, closed), run(0, unsure, closed), run(0, down, closed), run(0, unsure, closed), run(0, down, open)},
		"one tries after the wait":         append(opening, ask(11*s, halfOpen), refused(11*s, halfOpen), refused(99*s, halfOpen)),
		"a success closes it":              append(opening, ask(11*s, halfOpen), run(12*s, good, closed), ask(12*s, closed), ask(12*s, closed)),
		"after that three open it again":   append(opening, ask(11*s, halfOpen), run(12*s, good, closed), run(12*s, down, closed), run(12*s, down, closed), run(12*s, down, open)),
		"a failure opens it again":         append(opening, ask(11*s, halfOpen), run(12*s, down, open), refused(21*s, open), ask(22*s, halfOpen)),
		"runs from before are not counted": append(opening, run(2*s, down, open), run(3*s, good, open), refused(10*s, open), ask(11*s, halfOpen)),
	} {
		t.Run(name, func(t *testing.T) {
			b := throttle.NewBreaker(3, 10*s)
			zero := time.Unix(1000, 0)
			for i, x := range steps {
				before := b.State()
				var c throttle.Change
				if x.begin {
					var wait time.Duration
					_, wait, c = b.Begin(zero.Add(x.at))
					require.Equal(t, x.refused, wait > 0, "step %d", i)
				} else {
					c = b.Note(zero.Add(x.at), x.end)
				}
				require.Equal(t, x.state, b.State(), "step %d", i)
				require.Equal(t, before != x.state, c.Changed, "step %d", i)
				if c.Changed {
					require.Equal(t, x.state, c.To, "step %d", i)
				}
			}
		})
	}
}

// A run that did not take place, or that is unsure, leaves the turn to the next one.
func TestBreaker_TrialWithoutARun(t *testing.T) {
	b := throttle.NewBreaker(1, time.Second)
	now := time.Unix(1000, 0)
	b.Note(now, down)
	now = now.Add(time.Second)
	first, wait, _ := b.Begin(now)
	require.Zero(t, wait)
	_, wait, _ = b.Begin(now)
	require.Positive(t, wait)
	first.End()
	second, wait, c := b.Begin(now)
	require.Zero(t, wait)
	require.False(t, c.Changed)
	first.End() // again: it is not the turn of the second
	_, wait, _ = b.Begin(now)
	require.Positive(t, wait)
	second.End()
}

func TestBreaker_NilIsClosed(t *testing.T) {
	b := throttle.NewBreaker(0, 0)
	require.Nil(t, b)
	require.Equal(t, closed, b.State())
	trial, wait, c := b.Begin(time.Now())
	trial.End()
	require.Zero(t, wait)
	require.False(t, c.Changed)
	require.False(t, b.Note(time.Now(), down).Changed)
}

func TestBreaker_Paused(t *testing.T) {
	b := throttle.NewBreaker(1, 10*time.Second)
	zero := time.Unix(1000, 0)
	for i := range 3 {
		begin := zero.Add(time.Duration(i) * time.Hour)
		require.Equal(t, time.Duration(i)*15*time.Second, b.Paused(begin))
		b.Note(begin, down)
		require.Equal(t, time.Duration(i)*15*time.Second+7*time.Second, b.Paused(begin.Add(7*time.Second)))
		b.Begin(begin.Add(10 * time.Second))
		b.Note(begin.Add(15*time.Second), good)
	}
	require.Zero(t, (*throttle.Breaker)(nil).Paused(zero))
}

// Of many lanes at once, one tries.
func TestBreaker_OneTrial(t *testing.T) {
	b := throttle.NewBreaker(1, time.Second)
	now := time.Unix(1000, 0)
	b.Note(now, down)
	now = now.Add(time.Second)
	var granted atomic.Int32
	var lanes sync.WaitGroup
	for range 50 {
		lanes.Go(func() {
			if _, wait, _ := b.Begin(now); wait == 0 {
				granted.Add(1)
			}
		})
	}
	lanes.Wait()
	require.EqualValues(t, 1, granted.Load())
}
