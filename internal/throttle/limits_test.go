package throttle

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lane is a Waiter that notes the waits, and refuses those that are longer than most.
type lane struct {
	most  time.Duration // zero: no bound
	waits []time.Duration
}

var errTooLong = errors.New("too long")

func (*lane) Seat(ctx context.Context, slots chan<- struct{}, _ string) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *lane) Pause(ctx context.Context, d time.Duration, wake <-chan struct{}, _ string) error {
	w.waits = append(w.waits, d)
	if w.most > 0 && d > w.most {
		return errTooLong
	}
	select {
	case <-time.After(d):
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// crew is a number of lanes that wait for the same limits.
type crew struct {
	*Limits
	began time.Time
	mu    sync.Mutex
	got   []turnOf
}

// turnOf is a turn of a lane.
type turnOf struct {
	lane int
	at   time.Duration // since the begin
}

// lane lets a lane wait for a permit. A duplicate gives it back after claim.
func (c *crew) lane(ctx context.Context, lane int, w Waiter, claim time.Duration, ran bool) error {
	p, err := c.Acquire(ctx, w)
	if err != nil {
		return err
	}
	if ran {
		c.mu.Lock()
		c.got = append(c.got, turnOf{lane, time.Since(c.began)})
		c.mu.Unlock()
	}
	time.Sleep(claim)
	p.End(ran)
	return nil
}

// inLine starts lanes 0 to n-1, one behind the other, and returns when all have ended.
func (c *crew) inLine(t *testing.T, n int, do func(lane int)) {
	t.Helper()
	c.began = time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
		synctest.Wait()
	}
	all.Wait()
}

const tenth = 100 * time.Millisecond

// A duplicate costs its claim and no interval, also if other lanes wait already.
func TestLimits_DuplicatesCostNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{Limits: NewLimits(0, 10, time.Second)}
		c.inLine(t, 8, func(i int) {
			require.NoError(t, c.lane(t.Context(), i, &lane{}, time.Millisecond, i%4 == 3))
		})
		require.Equal(t, []turnOf{
			{3, 3 * time.Millisecond}, {7, tenth + 6*time.Millisecond},
		}, c.got)
	})
}

// Turns follow the order of the calls, and Try does not overtake a waiting lane.
func TestLimits_FirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{Limits: NewLimits(0, 10, time.Second)}
		var want []turnOf
		for i := range 6 {
			want = append(want, turnOf{i, time.Duration(i) * tenth})
		}
		stop := make(chan struct{})
		c.inLine(t, 6, func(i int) {
			if i == 5 {
				go func() {
					for range time.Tick(tenth / 10) {
						select {
						case <-stop:
							return
						default:
						}
						if _, ok := c.Try(); ok {
							t.Error("Try overtakes a waiting lane")
							return
						}
					}
				}()
			}
			require.NoError(t, c.lane(t.Context(), i, &lane{}, 0, true))
		})
		close(stop)
		require.Equal(t, want, c.got)
		time.Sleep(tenth)
		synctest.Wait()
		_, ok := c.Try()
		require.True(t, ok)
		_, ok = c.Try()
		require.False(t, ok)
	})
}

// A turn that is free belongs to the first lane, although a later one, or Try, asks before it.
func TestLimits_FreeTurnIsTheFirstLanes(t *testing.T) {
	q := turns{every: tenth}
	first, second := q.join(), q.join()
	_, ok := q.try()
	require.False(t, ok)
	_, wait, ok := q.ask(second)
	require.False(t, ok)
	require.Equal(t, tenth, wait)
	_, _, ok = q.ask(first)
	require.True(t, ok)
}

// A lane that stops waiting hands its place on, wherever it stands. Its slot is free again.
func TestLimits_StoppedLaneHandsItsPlaceOn(t *testing.T) {
	for name, stopped := range map[string][]int{
		"first": {1}, "middle": {2}, "last": {3}, "two": {1, 2}, "all": {1, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &crew{Limits: NewLimits(5, 10, time.Second)}
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(tenth/2, stop)
				c.inLine(t, 5, func(i int) {
					if slices.Contains(stopped, i) {
						require.ErrorIs(t, c.lane(ctx, i, &lane{}, 0, true), context.Canceled)
						return
					}
					require.NoError(t, c.lane(t.Context(), i, &lane{}, 0, true))
				})
				require.Len(t, c.got, 5-len(stopped))
				for i, got := range c.got {
					require.Equal(t, time.Duration(i)*tenth, got.at)
				}
				require.Empty(t, c.slots)
				require.Empty(t, c.turns.queue)
			})
		})
	}
}

// A lane hears the whole wait for its turn before it waits.
func TestLimits_TooLongWaitDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{Limits: NewLimits(0, 10, time.Second)}
		third := &lane{most: 2 * tenth}
		c.inLine(t, 5, func(i int) {
			if i == 3 {
				require.ErrorIs(t, c.lane(t.Context(), i, third, 0, true), errTooLong)
				return
			}
			require.NoError(t, c.lane(t.Context(), i, &lane{}, 0, true))
		})
		require.Equal(t, []time.Duration{3 * tenth}, third.waits)
		require.Equal(t, turnOf{4, 3 * tenth}, c.got[3])
	})
}

// An older turn that comes back brings no turn closer to a later one.
func TestLimits_OlderTurnGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crew{Limits: NewLimits(0, 10, time.Second)}
		c.inLine(t, 4, func(i int) {
			claim, ran := time.Duration(0), true
			if i == 0 {
				claim, ran = tenth+tenth/2, false
			}
			require.NoError(t, c.lane(t.Context(), i, &lane{}, claim, ran))
		})
		require.Equal(t, []turnOf{{1, tenth}, {2, 2 * tenth}, {3, 3 * tenth}}, c.got)
	})
}

// Whatever lanes do, runs keep their distance, and no interval passes without a run.
func TestLimits_RateIsKeptAndUsed(t *testing.T) {
	const every = 10 * time.Millisecond
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			c := &crew{Limits: NewLimits(0, 100, time.Second), began: time.Now()}
			var all sync.WaitGroup
			for i := range 32 {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				all.Go(func() {
					for range 60 {
						ctx, stop := context.WithCancel(t.Context())
						if r.IntN(4) == 0 {
							time.AfterFunc(time.Duration(r.IntN(100))*time.Millisecond, stop)
						}
						claim := time.Duration(r.IntN(500)) * time.Microsecond
						_ = c.lane(ctx, i, &lane{}, claim, r.IntN(3) > 0)
						stop()
					}
				})
			}
			all.Wait()
			runs := len(c.got)
			require.Greater(t, runs, 500)
			slices.SortFunc(c.got, func(a, b turnOf) int { return int(a.at - b.at) })
			for i := 1; i < runs; i++ {
				require.GreaterOrEqual(t, c.got[i].at-c.got[i-1].at, every)
			}
			// While lanes wait, a run is late by a few duplicates at most.
			last := c.got[runs*3/4]
			ideal := time.Duration(runs*3/4) * every
			require.Less(t, last.at, ideal*11/10, "the rate is used")
			require.Empty(t, c.turns.queue)
		})
	}
}

func TestLimits_Unbounded(t *testing.T) {
	for name, l := range map[string]*Limits{
		"nil": nil, "zero value": {}, "without bounds": NewLimits(0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			w := &lane{}
			for range 3 {
				p, err := l.Acquire(t.Context(), w)
				require.NoError(t, err)
				p.End(false)
				p.End(false)
				p, ok := l.Try()
				require.True(t, ok)
				p.End(true)
			}
			require.Empty(t, w.waits)
			require.Equal(t, 7, l.Ahead(7))
		})
	}
}

// A slot alone bounds without turns, and comes back whether the event ran or not.
func TestLimits_Slots(t *testing.T) {
	l := NewLimits(1, 0, 0)
	for _, ran := range []bool{true, false} {
		p, err := l.Acquire(t.Context(), &lane{})
		require.NoError(t, err)
		_, ok := l.Try()
		require.False(t, ok)
		p.End(ran)
		p.End(ran)
	}
	require.Empty(t, l.slots)

	l = NewLimits(1, 1, time.Hour)
	p, ok := l.Try()
	require.True(t, ok)
	p.End(true)
	_, ok = l.Try()
	require.False(t, ok, "no turn")
	require.Empty(t, l.slots, "and no slot is kept")
}

// A late timer does not lower the rate, and a long pause of the process brings no burst.
func TestAfter(t *testing.T) {
	const every, late = time.Second, 10 * time.Millisecond
	free := time.Unix(0, 0)
	for now, want := range map[time.Duration]time.Duration{
		0:                     every,
		time.Millisecond:      every,
		10 * time.Millisecond: every,
		11 * time.Millisecond: every + time.Millisecond,
		time.Hour:             time.Hour - late + every,
	} {
		require.Equal(t, want, after(free, free.Add(now), every, late).Sub(free), now)
	}
}

func TestPace(t *testing.T) {
	require.Equal(t, tenth, pace(10, time.Second))
	require.Equal(t, 333333334*time.Nanosecond, pace(3, time.Second), "no fourth run in a second")
	require.Equal(t, time.Duration(1), pace(1e9+1, time.Second))
}
